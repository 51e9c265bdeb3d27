"""A run's directory as it is typed: what survives a failure, what another run takes over, links, and what nobody may remove."""

import fcntl
import json
import os
import shutil
from pathlib import Path

import pytest

from gimbal import cli
from gimbal.cli import seeds
from gimbal.report.files import JsonLines
from gimbal.runtime import checkpoint

QUICK = str(Path(__file__).parent / "quick_recipe.py") + ":quick"
SCORE = """
calls = []
def score(completions):
    calls.append(1)
    if len(calls) > {most}:
        raise RuntimeError("the key is gone")
    return [float(len(set(text))) for text in completions]
"""
EVALUATION = 8  # calls of a reward in one evaluation of the quick recipe: each task sampled, and greedy
WORDS = ["train", QUICK, "threads=1", "max_staleness=0", "reward=mine.py:score"]
ALONE = [*WORDS, "held_out=None"]


def reward(most=10**9):
    """A reward that breaks after so many calls."""
    Path("mine.py").write_text(SCORE.format(most=most))


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    reward()
    return tmp_path


def names(directory):
    return sorted(path.name for path in Path(directory).iterdir())


def logged(directory):
    """Steps at which TensorBoard has the reward, and the evaluation."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(Path(directory) / "tensorboard")).Reload()
    return [event.step for event in events.Scalars("reward/mean")]


@pytest.mark.slow
def test_trackers_survive_a_first_step_that_failed(capsys):
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    reward(most=0)
    assert cli.main([*ALONE, "--name", "it", "--track", "tensorboard,wandb"]) == 2
    assert "failed and is no longer used" not in capsys.readouterr().out
    assert names("runs/it") == ["recipe.yaml", "stopped.json", "tracked.json", "wandb.id"]
    identity = Path("runs/it/wandb.id").read_text()
    reward()
    assert cli.main(["train", "--resume", "it"]) == 0
    assert "failed and is no longer used" not in capsys.readouterr().out
    assert json.loads(Path("runs/it/tracked.json").read_text()) == {"trackers": ["tensorboard", "wandb"]}
    assert logged("runs/it") == [1, 2] and Path("runs/it/wandb.id").read_text() == identity
    assert list(Path("runs/it/wandb").glob(f"offline-run-*-{identity}")) and not Path("runs/it/stopped.json").exists()


@pytest.mark.slow
def test_a_new_run_in_a_failed_ones_place_inherits_no_tracker():
    pytest.importorskip("tensorboard")
    reward(most=0)
    assert cli.main([*ALONE, "--name", "it", "--track", "tensorboard"]) == 2
    Path("runs/it/wandb.id").write_text("0badcafe")  # as wandb would have left it
    Path("runs/it/tensorboard").mkdir()  # as a kill would have
    reward()
    assert cli.main([*ALONE, "--name", "it"]) == 0
    assert not {"tensorboard", "wandb", "wandb.id"} & set(names("runs/it"))
    assert cli.main(["train", "--resume", "it", "steps=3"]) == 0, "nor does it find them later"
    assert not {"tensorboard", "wandb", "wandb.id"} & set(names("runs/it"))


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--name", "it"]])
def test_a_first_step_whose_evaluation_failed_is_kept(capsys, words):
    """The step was taken: whatever the evaluation lacks, a resumed run evaluates and goes on to the same figures."""
    directory = "runs/it" if words else "runs/quick-0"
    command = [*WORDS, "held_out.every=1", "checkpoint_every=25"]
    assert cli.main([*command, "--name", "whole"]) == 0
    reward(most=EVALUATION + 2)
    capsys.readouterr()
    assert cli.main([*command, *words]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"Fix it, then continue with: gimbal train --resume {directory}") and said.count("ix it") == 1
    assert "No step was finished" not in said and "the same command" not in said
    assert names(f"{directory}/checkpoints") == ["step_000001"]
    assert json.loads(Path(directory, "stopped.json").read_text())["step"] == 1
    reward()
    assert cli.main([*command, *words]) == (2 if words else 0), (
        "a step was done there: another run gets another directory"
    )
    assert names("runs") == sorted(["whole", "it"] if words else ["whole", "quick-0", "quick-0-2"])
    capsys.readouterr()
    assert cli.main(["doctor", directory]) == 0 and "the key is gone" in capsys.readouterr().out
    assert cli.main(["train", "--resume", directory]) == 0
    assert not Path(directory, "stopped.json").exists(), "a resumed run forgets why it had stopped"
    for one, other in zip(
        *(JsonLines(Path(at, "metrics.jsonl")).read() for at in ("runs/whole", directory)), strict=True
    ):
        assert {key: one[key] for key in ("step", "tokens", "eval/score")} == {
            key: other[key] for key in ("step", "tokens", "eval/score")
        }
    capsys.readouterr()
    assert cli.main(["doctor", directory]) == 0 and "the key is gone" not in capsys.readouterr().out


@pytest.mark.slow
def test_an_evaluation_that_fails_in_a_part_of_the_users_says_after_which_step(capsys):
    Path("exam.py").write_text(
        "from dataclasses import dataclass\nfrom pathlib import Path\nfrom gimbal.environments.base import AbstractTasks\n"
        "from gimbal.records import Task\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Exam(AbstractTasks):\n"
        "    def __len__(self):\n        return 1\n"
        "    def __getitem__(self, index):\n        if Path('runs/it/rollouts.jsonl').exists():\n            raise KeyError('key')\n"
        "        return Task(id='a', prompt='1 + 1 =')\n"
    )
    words = [QUICK, "threads=1", "held_out.every=1", "held_out.tasks=exam.py:Exam()", "--name", "it"]
    assert cli.main(["train", *words]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "Exam" in said and "KeyError: 'key' (exam.py, line 11), after step 1. Fix it, then" in said, said
    assert said.endswith("continue with: gimbal train --resume runs/it")


@pytest.mark.slow
def test_an_unnamed_command_takes_the_directory_of_its_failure():
    """docs/reward.md: once it is fixed, the same command starts again; what was failed with other settings stays."""
    reward(most=0)
    assert cli.main(ALONE) == 2
    assert names("runs") == ["quick-0"] and names("runs/quick-0") == ["recipe.yaml", "stopped.json"]
    reward()
    assert cli.main([*ALONE, "steps=1"]) == 0 and names("runs") == ["quick-0", "quick-0-2"]
    assert names("runs/quick-0") == ["recipe.yaml", "stopped.json"]
    assert cli.main(ALONE) == 0 and names("runs") == ["quick-0", "quick-0-2"]
    assert len(JsonLines(Path("runs/quick-0/metrics.jsonl")).read()) == 2
    assert not Path("runs/quick-0/stopped.json").exists()
    assert cli.main(ALONE) == 0 and names("runs") == ["quick-0", "quick-0-2", "quick-0-3"]


@pytest.mark.slow
@pytest.mark.parametrize("link", ["runs/x", "runs"])
def test_a_run_behind_a_link(place, capsys, link):
    elsewhere = place / "a disk" / "lä"
    elsewhere.mkdir(parents=True)
    Path(link).parent.mkdir(exist_ok=True)
    Path(link).symlink_to(elsewhere)
    there = elsewhere if link == "runs/x" else elsewhere / "x"
    reward(most=3)  # each step calls it twice
    assert cli.main([*ALONE, "checkpoint_every=1", "--name", "x"]) == 2
    assert "continue with: gimbal train --resume runs/x" in capsys.readouterr().err
    assert checkpoint.step_of(checkpoint.newest(there)) == 1 and (there / "stopped.json").is_file()
    reward()
    assert cli.main(["train", "--resume", "x"]) == 0
    assert cli.main(["report", "x"]) == 0 and (there / "report.html").is_file()
    assert cli.main(["export", "x", "out"]) == 0 and Path("out/model.safetensors").is_file()
    assert cli.main(["train", "--resume", str(there), "steps=3"]) == 0, "by its own place too"
    assert len(JsonLines(Path("runs/x/metrics.jsonl")).read()) == 3 and Path(link).is_symlink()


@pytest.mark.parametrize("link", ["runs/x", "runs"])
def test_what_never_began_behind_a_link_leaves_the_link(place, capsys, link):
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    Path(link).parent.mkdir(exist_ok=True)
    Path(link).symlink_to(elsewhere)
    Path("mine.py").write_text("def score(completions, gold):\n    return [1.0 for _ in completions]\n")
    assert cli.main([*ALONE, "--name", "x"]) == 2
    assert "takes the column `gold`" in capsys.readouterr().err
    assert Path(link).is_symlink() and not list(elsewhere.iterdir())
    reward()
    assert cli.main([*ALONE, "steps=1", "--name", "x"]) == 0 and (elsewhere / "summary.json").exists() == (
        link == "runs/x"
    )


def test_links_to_nowhere_are_refused_and_nothing_hangs(place, capsys):
    for link in ("runs", "runs/x"):
        Path(link).symlink_to(place / "gone")
        for words in ([], ["--name", "x"]) if link == "runs" else (["--name", "x"],):
            assert cli.main([*ALONE, *words]) == 2
            err = capsys.readouterr().err
            assert err.count("\n") == 1 and f"{link} " in err, err
        assert Path(link).is_symlink() and not Path("gone").exists()
        Path(link).unlink()
        Path("runs").mkdir(exist_ok=True)


@pytest.fixture
def here(monkeypatch):
    """The runs of a series train in this process."""
    monkeypatch.setattr(
        seeds.Series, "_train", lambda self, directory, job: cli.main(["train", "--resume", str(directory), *self.rest])
    )


@pytest.mark.slow
def test_a_series_leaves_a_seed_that_another_process_trains(here, capsys):
    words = [*ALONE, "--seeds", "2"]
    reward(most=0)
    assert cli.main(words) == 2 and "2 of 2 runs failed" in capsys.readouterr().err
    for seed in (0, 1):
        assert names(f"runs/quick-s{seed}") == ["recipe.yaml", "stopped.json"], "each says why"
    Path("runs/quick-s0/stopped.json").unlink()  # as where another process has just begun
    held = os.open("runs/quick-s0", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    reward()
    assert cli.main(words) == 2
    err = capsys.readouterr().err
    assert "another process is training in runs/quick-s0" in err and "1 of 2 runs failed: quick-s0 (exit code 2)" in err
    assert names("runs/quick-s0") == ["recipe.yaml"] and Path("runs/quick-s1/summary.json").is_file()
    os.close(held)
    assert cli.main(words) == 0 and Path("runs/quick-s0/summary.json").is_file()


def test_a_series_removes_only_what_its_runs_wrote(monkeypatch, capsys):
    words = [*ALONE, "--seeds", "2"]

    def fails(self, directory, job):
        if directory.name == "quick-s1":
            shutil.rmtree(directory)  # by another series, or by a person
        else:
            Path(directory, "notes.txt").write_text("mine")
        return 2

    monkeypatch.setattr(seeds.Series, "_train", fails)
    assert cli.main(words) == 2
    assert "2 of 2 runs failed" in capsys.readouterr().err
    assert names("runs") == ["quick-s0"] and names("runs/quick-s0") == ["notes.txt", "recipe.yaml"]
