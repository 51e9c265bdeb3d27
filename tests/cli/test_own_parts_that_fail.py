"""A part of the user's own that raises or gives a wrong thing ends in one sentence: the part, the error, the line of its file."""

import re
import shutil
from pathlib import Path

import pytest

from gimbal import cli, config
from gimbal.config.own import OwnError, fault, shaped, told, wrong

QUICK = str(Path(__file__).parent / "quick_recipe.py") + ":quick"
BROKEN = Path(__file__).parent.parent / "users" / "broken.py"
CASES = {
    "objective=broken.py:Objective(fault='raises')": r"Objective (objective) raised KeyError: 'nothing' (broken.py, line 27), in the",
    "objective=broken.py:Objective(fault='shape')": "Objective (broken.py, line 21) returned a Tensor of shape [4, 1] in the first "
    "step; it must return a tensor of one number for each decision, here of shape [4, 6]",
    "advantage=broken.py:Advantage()": "Advantage (broken.py, line 32) returned [1.0] in the first step; it must return a tensor of",
    "advantage=broken.py:NotFinite()": "the advantages of step 1 are not finite after NotFinite: see what it divides by",
    "workflow=broken.py:Workflow(fault='call')": "Workflow (broken.py, line 40) yielded 'draw' in the first step; it must yield a call",
    "workflow=broken.py:Workflow(fault='row')": "Workflow (broken.py, line 40) returned a Rollout in the first step; it must",
    "workflow=broken.py:Workflow(fault='exits')": "Workflow (workflow) raised SystemExit: 0 (broken.py, line 43), in the first step",
    "workflow=Dialogue(tool='broken.py:Tool()')": "Tool (workflow.tool) raised RuntimeError: no triggers (broken.py, line 53)",
    "reward=broken.py:Reward()": "Reward raised ZeroDivisionError: division by zero (broken.py, line 64)",
    "filters=broken.py:Filter()": "Filter (broken.py, line 69) returned None in the first step; it must return the Group, or Drop(",
    "tasks=broken.py:Tasks()": "Tasks.__getitem__ (broken.py, line 78) returned {'prompt': '1 + 1 ='} before the first step; it",
    "curriculum=broken.py:Curriculum()": "Live raised KeyError: 'next' (broken.py, line 84), in the first step",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    shutil.copy(BROKEN, tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_each_kind_of_part(place, capsys):
    for given, sentence in CASES.items():
        assert cli.main(["train", QUICK, "threads=1", "held_out=None", "prompts_per_step=1", given]) == 2, given
        said = capsys.readouterr().err.splitlines()[-1]
        assert sentence in said and "--resume" not in said, (given, said)
        for directory in Path("runs").iterdir():  # it took no step
            assert sorted(path.name for path in directory.iterdir()) == ["recipe.yaml", "stopped.json"]


@pytest.mark.slow
def test_the_doctor_reads_what_failed_in_its_first_step_and_the_same_command_starts_again(place, capsys):
    words = ["train", QUICK, "threads=1", "held_out=None", "--name", "it", "reward=mine.py:score"]
    Path("mine.py").write_text("def score(completions):\n    return 3 / 0\n")
    assert cli.main(words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "ZeroDivisionError" in said and said.endswith("No step was finished: fix it, then start it again as before")
    assert sorted(path.name for path in Path("runs/it").iterdir()) == ["recipe.yaml", "stopped.json"]
    assert cli.main(["doctor", "it"]) == 0
    assert "ZeroDivisionError" in capsys.readouterr().out
    Path("mine.py").write_text("def score(completions):\n    return [1.0 for _ in completions]\n")
    assert cli.main([*words[:4], "steps=1", *words[4:]]) == 2
    assert "already exists with another recipe and no finished step" in capsys.readouterr().err
    assert cli.main(words) == 0 and not Path("runs/it/stopped.json").exists()
    assert len(Path("runs/it/metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_one_that_fails_later_says_after_which_step_and_how_to_continue(place, capsys):
    words = ["held_out=None", "checkpoint_every=1", "objective=broken.py:Objective(fault='late')"]
    assert cli.main(["train", QUICK, "threads=1", "--name", "late", *words]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("line 27), after step 1. Fix it, then continue with: gimbal train --resume runs/late")
    assert "broken.py, line 27" in config.read_file(Path("runs/late/stopped.json"))["sentence"]
    file = Path("broken.py")
    file.write_text(file.read_text().replace('{}["nothing"]', "Terms(loss_NS=-logprob_NS)"))
    config.parts.sys.modules.pop(str(file.resolve()))
    assert cli.main(["train", "--resume", "runs/late"]) == 0 and Path("runs/late/summary.json").is_file()
    assert "broken.py was edited since the checkpoint: it is no longer the same run" in capsys.readouterr().out


def test_what_is_the_users_fault_and_what_is_not():
    def theirs():
        raise KeyError("a\n  b")

    def refused():  # by gimbal, in words that say enough
        config.read("x", int, "steps")

    for function, sentence in (
        (theirs, "theirs raised KeyError: 'a.*b' \\(test_own"),
        (refused, "^$"),
        (lambda: int("x"), "ValueError"),
    ):
        try:
            function()
        except Exception as error:
            error.__traceback__ = error.__traceback__.tb_next
            assert re.search(sentence, fault(error)), fault(error)
    assert not fault(KeyError("of nobody's"))


def test_values_in_a_sentence(single_thread):
    import torch

    assert told("x" * 200) == "a str" and told(torch.ones(2, 3)) == "a Tensor of shape [2, 3]" and told(None) == "None"
    like = torch.ones(2)
    assert shaped(None, like, like) is like
    with pytest.raises(OwnError, match=r"returned 3\.0; it must return a tensor .* of shape \[2\]"):
        shaped(object(), 3.0, like)
    assert "object yielded 1; it must yield 2" in str(wrong(object(), "next", 1, "2", "yield")).replace(".next", "")


@pytest.mark.parametrize("value", ["x" * 5000, "a long text " * 500, "1," * 3000])
def test_a_value_of_any_length_is_told_in_short(single_thread, capsys, value):
    assert cli.main(["train", "demo", f"objective={value}", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") <= 2 and len(said) < 2200, len(said)
    assert "objective" in said and "it must be" in said
