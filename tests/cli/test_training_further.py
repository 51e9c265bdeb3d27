"""A finished run is told so; with steps=N it is trained further, and another run begins from its weights."""

import json
from pathlib import Path

import pytest

from gimbal import cli
from gimbal.report.files import deterministic

QUICK = str(Path(__file__).parent / "quick_recipe.py") + ":quick"


def train(*words):
    assert cli.main(["train", *words]) == 0, words


def left(name):
    rows = [json.loads(line) for line in Path(f"runs/{name}/metrics.jsonl").read_text().splitlines()]
    return [deterministic(row) for row in rows], weights(name)


def weights(name):
    return Path(f"runs/{name}/model/model.safetensors").read_bytes()


@pytest.mark.slow
def test_training_further(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "def parity(completions):\n    return [float(sum(map(ord, text)) % 7) for text in completions]\n"
    )
    words = [QUICK, "reward=mine.py:parity", "threads=1", "held_out=None", "max_staleness=1"]
    train(*words, "steps=3", "--name", "whole")
    train(*words, "steps=1", "--name", "further")
    capsys.readouterr()
    train("--resume", "further")
    assert capsys.readouterr().err == (
        "gimbal: runs/further is finished (1 step). To train longer: gimbal train --resume runs/further steps=2\n"
    )
    train("--resume", "further", "steps=3")
    assert (
        "runs/further continues with steps 1 -> 3: the result is the same as for a run started with that many steps"
        in capsys.readouterr().err
    )
    assert left("whole") == left("further") and left("whole")[0][-1]["grad_norm"] > 0
    assert cli.main(["train", "--resume", "further", "steps=2"]) == 2
    assert "has already done 3 steps; steps is the total, so it must be above 3" in capsys.readouterr().err

    train(*words, "steps=1", "decay=linear", "--name", "decaying")
    train("--resume", "decaying", "steps=2")
    assert "the learning rate decays towards the last step, so this differs" in capsys.readouterr().err
    train("--from", "further", "model=runs/further/model", "steps=0", "--name", "warm")
    assert weights("warm") == weights("further")

    summary, recipe = Path("runs/further/summary.json"), Path("runs/further/recipe.yaml")
    was = json.loads(summary.read_text())
    summary.write_text("null")
    assert cli.main(["export", "further", "out"]) == 2
    assert "remove it, and gimbal train --resume runs/further writes it again" in capsys.readouterr().err
    summary.unlink()
    train("--resume", "further")
    assert json.loads(summary.read_text())["after"] == was["after"]

    metrics, before = Path("runs/further/metrics.jsonl"), recipe.read_bytes()
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[1:]))
    assert cli.main(["train", "--resume", "further", "steps=5"]) == 2
    assert recipe.read_bytes() == before, "a refused resume changes nothing"
