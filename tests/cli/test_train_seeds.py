"""gimbal train --seeds and gimbal compare, as a user meets them: real runs in real processes."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from quick_recipe import quick

from gimbal import cli, recipes
from gimbal.cli import seeds
from gimbal.report.files import JsonLines, deterministic
from gimbal.runtime import checkpoint, directories

QUICK = str(Path(__file__).parent / "quick_recipe.py") + ":quick"


def started(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "gimbal", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def call(*words):
    process = started(*words)
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


def test_numbers():
    assert seeds.numbers("3") == [0, 1, 2] and seeds.numbers("3,8") == [3, 8] and seeds.numbers("7,") == [7]
    for text in ("0", "x", "-1", "1,1", ","):
        with pytest.raises(ValueError, match="--seeds"):
            seeds.numbers(text)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seeds", "2", "seed=1"], "drop seed="),
        (["--seeds", "x"], "it must be a number of seeds"),
        (["--jobs", "2"], "needs --seeds"),
        (["--seeds", "2", "--jobs", "1000"], "each needs its own core"),
        (["--seeds", "2", "num_generations=1"], "compares the rollouts of a group"),
        (["--track", "tensorbord"], "did you mean tensorboard?"),
    ],
)
def test_refusals(words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", QUICK, *words]) == 2
    out, err = capsys.readouterr()
    assert sentence in err and err.count("\n") == 1 and not out and not list(tmp_path.iterdir())


def test_a_name_of_another_recipe_is_not_touched(tmp_path):
    directories.create(replace(quick(), seed=1, steps=9), QUICK, "quick-s1", tmp_path)
    with pytest.raises(ValueError, match="quick-s1 already exists with another recipe"):
        seeds.prepared(quick(), QUICK, "quick", tmp_path, [0, 1])
    assert [path.name for path in tmp_path.iterdir()] == ["quick-s1"]
    assert [d.name for d in seeds.prepared(quick(), QUICK, "other", tmp_path, [0, 1])] == ["other-s0", "other-s1"]
    seeds.prepared(quick(), QUICK, "other", tmp_path, [0, 1])  # the same again is no conflict


@pytest.mark.parametrize("words", [[], ["nothing-*"], ["x", "--threshold", "high"], ["x", "--json", "no/where/c.json"]])
def test_compare_refuses_in_one_line(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", *words]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("gimbal: ") and err.count("\n") == 1 and not out


@pytest.mark.slow
def test_a_failed_seed_stops_no_other_and_the_same_command_mends_it(tmp_path, capsys):
    broken = directories.create(replace(recipes.load(QUICK), seed=1), QUICK, "quick-s1", tmp_path)
    (broken / "checkpoints").write_text("a file where a directory must be")
    words = ["train", QUICK, "--seeds", "2", "--runs", str(tmp_path), "--jobs", "2"]
    code, out, err = call(*words)
    assert code == 2 and "gimbal: 1 of 2 runs failed: quick-s1 (exit code 2); give the same command again" in err
    assert "quick-s0 | step 2/2" in out and "over 1 run" in out
    before = (tmp_path / "quick-s0" / "summary.json").stat().st_mtime_ns

    (broken / "checkpoints").unlink()
    code, out, err = call(*words[:-2])
    assert code == 0 and "1 of 2 runs are already finished" in err and "over 2 runs" in out
    assert before == (tmp_path / "quick-s0" / "summary.json").stat().st_mtime_ns

    # Each is the run that a plain `gimbal train seed=1` is, and the seeds differ.
    assert cli.main(["train", QUICK, "seed=1", "--runs", str(tmp_path), "--name", "plain"]) == 0
    runs = [JsonLines(tmp_path / name / "metrics.jsonl").read() for name in ("plain", "quick-s1", "quick-s0")]
    plain, same, other = ([deterministic(row) for row in rows] for rows in runs)
    assert [row["tokens"] for row in plain] == [row["tokens"] for row in same] and plain != other

    capsys.readouterr()
    figure, data = tmp_path / "c.svg", tmp_path / "c.json"
    words = ["compare", f"{tmp_path}/quick-s*", "--figure", str(figure), "--json", str(data), "--metric", "length"]
    assert cli.main(words) == 0
    assert "quick: length" in capsys.readouterr().out and figure.stat().st_size and data.stat().st_size


@pytest.mark.slow
def test_ctrl_c_stops_every_run_at_a_checkpoint(tmp_path):
    process = started(
        *["train", QUICK, "steps=5000", "held_out=None", "--seeds", "3", "--jobs", "2", "--runs", str(tmp_path)]
    )
    deadline = time.monotonic() + 180
    running = [tmp_path / f"quick-s{seed}" for seed in (0, 1)]
    while not all((directory / "metrics.jsonl").is_file() for directory in running):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 130 and "stopped; give the same command again" in err
    assert all(checkpoint.newest(directory) is not None for directory in running)
    assert not (tmp_path / "quick-s2" / "metrics.jsonl").exists()
