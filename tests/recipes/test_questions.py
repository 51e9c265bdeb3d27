"""Recipes and methods by the question that they answer."""

from pathlib import Path

import pytest

from gimbal import config, recipes
from gimbal.cli import main


def test_every_recipe_stands_under_one_question():
    under = [name for question in recipes.questions() for name in recipes.of(question)]
    assert sorted(under) == sorted(recipes.names()) and len(under) >= 105
    beside = {file.stem for file in Path(recipes.__file__).parent.glob("*.py")}
    assert beside == {"__init__", "configure", "shipped", "sizes"}, "a recipe lies in a package, or no command finds it"
    assert len(recipes.of("core")) == 13 and all(about[-1] in ".?" for about in recipes.questions().values())


def test_what_answers_a_question(capsys):
    assert main(["list", "recipes", "--for", "staleness"]) == 0
    said = capsys.readouterr().out
    assert "vcpo" in said and "exact_proximal" in said and "gspo" not in said
    assert main(["list", "methods", "--for=entropy"]) == 0
    said = capsys.readouterr().out
    assert "CovarianceMask" in said and "EntropyBonus" in said and "GroupNormalized" not in said
    assert main(["list", "methods", "--for", "staleness"]) == 0
    said = capsys.readouterr().out  # what the core holds answers it too
    assert all(
        name in said for name in ("Pace", "DropStale", "TruncatedWeight", "Recompute", "MinimumVarianceCentered")
    )
    assert "GroupNormalized" not in said


def test_what_can_be_listed_is_shown(capsys):
    for words in ([], ["--help"], ["methods", "--help"]):
        assert main(["list", *words]) == 0
        assert "gimbal list recipes|methods|tasks [--for QUESTION]" in capsys.readouterr().out
    for words in (["methods", "--for"], ["--for"], ["recipes", "--for="]):
        assert main(["list", *words]) == 0
        assert "  staleness     How does training stay stable on old data?" in capsys.readouterr().out
    for command in ("show", "env"):
        assert main([command, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"gimbal {command}")


def test_methods_of_a_question_are_those_that_the_core_lacks():
    core = recipes.methods_of("core")
    assert {"GroupNormalized", "ClippedRatio", "GAE"} <= core
    assert core & recipes.methods_of("mismatch") == {"TruncatedWeight", "MaskedWeight"}, (
        "every correction is about a mismatch"
    )
    assert "DiscrepancyPenalty" in recipes.methods_of("mismatch") and not core & recipes.methods_of("entropy")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["recipes", "--for", "stalenes"], "did you mean staleness"),
        (["tasks", "--for", "entropy"], "not grouped by question"),
        (["recipes", "--of", "entropy"], "takes one of recipes, methods, tasks"),
    ],
)
def test_questions_that_are_none(argv, said, capsys):
    assert main(["list", *argv]) == 2
    assert said in capsys.readouterr().err


def test_a_run_saved_before_its_parts_moved_loads():
    """A saved run names gimbal's parts by class alone, wherever their files are."""
    saved = {"class": "SequenceRatio", "clip_low": 3e-4}
    objective = config.read(saved, recipes.load("gspo").objective.__class__)
    assert objective.clip_low == 3e-4
    for name in ("vcpo", "asyppo", "pendulum"):
        assert "gimbal." not in config.dump(recipes.load(name), name)


def test_a_module_that_has_moved_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"there is no module gimbal\.objectives\.clipped_ratio"):
        config.find("gimbal.objectives." + "clipped_ratio:ClippedRatio")
