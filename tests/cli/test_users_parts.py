"""Whatever a user brings, in every form that it may have, through every command that meets it."""

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import gimbal
from gimbal import cli
from gimbal.cli import seeds
from gimbal.rewards.function import Function
from gimbal.rewards.pattern import Pattern

USERS = Path(__file__).parent.parent / "users"  # files of a user's
# Words of a command line, {} being the file or the module of the functions.
REWARDS = {
    "reference": ["reward={}:score"],
    "references": ["rewards=('{}:score', '{}:brevity')"],
    "commas": ["reward={}:score*2,Pattern(pattern='a,b'),{}:brevity"],
    "added": ["rewards.0.weight=0.5", "rewards.1={}:brevity"],
    "weights": [
        "rewards=(Function(function='{}:score', weight=2), 'Pattern(pattern=\"a\")', Function(function='{}:brevity'))"
    ],
}


def named(place):
    """Parts of every other kind, of this file or module."""
    return [f"workflow.tool={place}:Shout(said='7')", f"objective={place}:Scaled()", f"tasks={place}:Sums(size=6)"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The user's directory: files that are modules of a package too. No path leads there but the working directory."""
    for directory in (tmp_path, tmp_path / "package"):
        directory.mkdir(exist_ok=True)
        shutil.copy(USERS / "parts.py", directory)
        shutil.copy(USERS / "scores.py", directory)
    (tmp_path / "exam.jsonl").write_text('{"prompt": "1 + 1 ="}\n{"prompt": "2 + 1 ="}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", os.getcwd())])
    yield tmp_path
    forget()


def forget():
    """As in a new process: nothing of the user's has been imported."""
    for name in list(sys.modules):
        if os.path.isabs(name) or name.partition(".")[0] in ("parts", "scores", "package"):
            del sys.modules[name]


def command(*words):
    forget()
    assert cli.main(list(words)) == 0, words


def more_steps(directory):
    """The run is not over: it wants a step more."""
    file = Path(directory) / "recipe.yaml"
    saved = yaml.safe_load(file.read_text())
    saved["run"]["steps"] += 1
    file.write_text(yaml.safe_dump(saved, sort_keys=False))


def through_the_commands(name):
    """A run that has been trained: every command that reads it from its files, in what is to them another process."""
    more_steps(f"runs/{name}")
    command("train", "--resume", name)
    command("train", "--from", name, "--name", f"{name}-anew", "steps=1")
    command("eval", name, "held_out=exam.jsonl", "held_out.samples=1")
    command("report", name)
    saved = yaml.safe_load(Path(f"runs/{name}/recipe.yaml").read_text())["run"]
    assert Path(f"runs/{name}-anew/summary.json").is_file() and Path(f"runs/{name}/report.html").is_file()
    return saved


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "scores"), [("parts.py", "scores.py"), ("package.parts", "package.scores")])
def test_what_a_command_line_names(parts, scores, place, monkeypatch):
    for form, words in REWARDS.items():
        given = [word.replace("{}", scores) for word in words]
        command("train", f"{parts}:recipe", *named(parts), *given, "--name", form)
    saved = through_the_commands("commas")
    assert [reward["weight"] for reward in saved["rewards"]] == [2, 1, 1] and saved["rewards"][1]["pattern"] == "a,b"
    assert saved["workflow"]["tool"]["class"].endswith(":Shout") and saved["tasks"]["size"] == 6
    assert [reward.get("function") for reward in saved["rewards"]] == [f"{scores}:score", None, f"{scores}:brevity"]

    # Each seed is a process that is given its directory to continue with.
    train = lambda self, directory, job: cli.main(["train", "--resume", str(directory)])  # noqa: E731
    monkeypatch.setattr(seeds.Series, "_train", train)
    command("train", f"{parts}:recipe", *named(parts), f"reward={scores}:score", "--seeds", "1", "--name", "series")
    assert Path("runs/series-s0/summary.json").is_file()


@pytest.mark.slow
def test_objects(place, monkeypatch):
    """In Python, several with weights."""
    monkeypatch.syspath_prepend(str(place))
    from package import parts, scores

    several = [scores.score, Pattern(pattern="a"), Function(function=scores.brevity, weight=0.5)]
    given = {"tasks": parts.Sums(size=6), "objective": parts.Scaled(), "workflow__tool": parts.Shout(said="7")}
    for name, reward in (("one", scores.score), ("several", several)):
        gimbal.train("package.parts:recipe", reward=reward, **given, name=name)
    saved = through_the_commands("several")
    assert [r["weight"] for r in saved["rewards"]] == [1.0, 1.0, 0.5] and saved["workflow"]["tool"]["said"] == "7"


@pytest.mark.slow
def test_a_function_that_a_recipe_holds(place):
    command("train", "parts.py:recipe", "--name", "own")
    more_steps("runs/own")
    command("train", "--resume", "own")


@pytest.mark.slow
@pytest.mark.parametrize("guard", [True, False])
def test_a_script_of_ones_own(place, monkeypatch, capsys, guard):
    """What a script defines is found again in its file; one that trains whenever it is read is refused, and told why."""
    text = f"""
import gimbal
def score(completions):
    return [float(len(set(text))) for text in completions]
if {"__name__ == '__main__'" if guard else "True"}:
    gimbal.train('package.parts:recipe', reward=score, name='mine')
"""
    script = place / "script.py"
    script.write_text(text)
    main = ModuleType("__main__")
    main.__file__, main.__spec__ = str(script), None
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "__main__", main)
        exec(compile(text, script, "exec"), vars(main))
        more_steps("runs/mine")
        gimbal.train(resume="mine")  # in the script itself nothing is read again
    if guard:
        assert through_the_commands("mine")["rewards"][0]["function"] == f"{script}:score"
        return
    more_steps("runs/mine")
    forget()
    capsys.readouterr()
    assert cli.main(["train", "--resume", "mine"]) == 2
    assert "put the call to gimbal.train under if __name__ == '__main__':" in capsys.readouterr().err


@pytest.mark.slow
def test_a_notebook(place, monkeypatch, capsys):
    """What it defines trains and continues there; no other process can know it, and one that is asked to says what to do."""
    main = ModuleType("__main__")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "__main__", main)
        exec("def score(completions):\n    return [float(len(set(text))) for text in completions]\n", vars(main))
        gimbal.train("package.parts:recipe", reward=vars(main)["score"], name="mine")
        more_steps("runs/mine")
        gimbal.train(resume="mine")
    more_steps("runs/mine")
    command("report", "mine")
    capsys.readouterr()
    assert cli.main(["train", "--resume", "mine"]) == 2
    assert "score was defined in a notebook" in capsys.readouterr().err
