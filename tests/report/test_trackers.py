"""Trackers for real: what TensorBoard, wandb (offline) and trackio have on disk is read back with their own readers."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal import config
from gimbal.environments.dataset import Rows
from gimbal.report import trackers
from gimbal.report.files import JsonLines
from gimbal.report.trackers import Trackers, asked
from gimbal.runtime.local import run_local
from gimbal.runtime.run import HeldOut


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "some-run"
    directory.mkdir()
    (directory / "recipe.yaml").write_text(yaml.dump({"recipe": "r", "run": {"seed": 3, "objective": {"clip": 0.2}}}))
    return directory


def logged(name, directory, notes):
    """Steps 1 and 2; then, as after a kill, 2 and 3 by another sitting."""
    for first, step in ((1, 0), (2, 1)):
        tracker = Trackers([name], directory, step, notes.append)
        tracker.log(first, {"reward/mean": float(first), "loss": float("nan")})
        tracker.log(first + 1, {"reward/mean": float(first + 1)})
        tracker.close()
    assert notes == []


def test_tensorboard(directory):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged("tensorboard", directory, [])
    events = EventAccumulator(str(directory / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert "clip: 0.2" in events.Tensors("recipe/text_summary")[0].tensor_proto.string_val[0].decode()


def wandb_records(data):
    """Of a .wandb file: LevelDB's log format (blocks of 32 KiB; pieces of crc, length, kind) behind a header of 7 bytes."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # the record is whole, or this was its last piece
            yield whole
            whole = b""


def written(directory):
    """(rows, names, configs) of all runs that wandb left on disk."""
    from wandb.proto import wandb_internal_pb2

    rows, names, configs = [], set(), {}
    for file in sorted(directory.glob("wandb/offline-run-*/run-*.wandb")):
        for data in wandb_records(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                names.add((record.run.project, record.run.display_name, record.run.run_id))
                configs |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "history":
                row = {
                    item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
                rows.append((row["_step"], row["reward/mean"]))
    return rows, names, configs


@pytest.mark.slow
def test_wandb_offline(directory, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged("wandb", directory, [])
    end = (
        time.monotonic() + 60
    )  # wandb's own process writes the last rows, on a busy machine a while after they were handed in
    while len((found := written(directory))[0]) < 4 and time.monotonic() < end:
        time.sleep(0.5)
    rows, names, configs = found
    assert rows == [(1, 1.0), (2, 2.0), (2, 2.0), (3, 3.0)]
    (identity,) = names  # both sittings are one run
    assert identity[:2] == ("gimbal", "some-run") and configs["objective"] == {"clip": 0.2}


@pytest.mark.slow
def test_trackio(directory, tmp_path):
    """In a process of its own: trackio reads where its data goes when it is imported."""
    pytest.importorskip("trackio")
    program = """
import sys
from pathlib import Path
from gimbal.report.trackers import Trackers
for step in (0, 1):
    tracker = Trackers(["trackio"], Path(sys.argv[1]), step, lambda text: sys.exit(text))
    tracker.log(step + 1, {"reward/mean": step + 1.0})
    tracker.close()
"""
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        [sys.executable, "-c", program, str(directory)], check=True, env=environment, capture_output=True, timeout=120
    )
    with sqlite3.connect(tmp_path / "trackio" / "gimbal.db") as store:
        found = store.execute("select run_name, step, metrics from metrics order by step").fetchall()
    assert [(name, step, json.loads(row)["reward/mean"]) for name, step, row in found] == [
        ("some-run", 1, 1.0),
        ("some-run", 2, 2.0),
    ]


class Broken(trackers.AbstractTracker):
    """Fails at its third log."""

    def __init__(self, directory, recipe, step):
        self.calls = 0

    def log(self, step, metrics):
        self.calls += 1
        if self.calls > 2:
            raise ConnectionError("no route\nto host")

    def close(self):
        raise AssertionError("a tracker that was left out is not called again")


class Unborn(Broken):
    def __init__(self, directory, recipe, step):
        raise RuntimeError("api_key not configured")


@pytest.mark.slow
def test_a_failing_tracker_is_named_once_and_stops_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trackers, "KNOWN", {"broken": Broken, "unborn": Unborn})
    run = small_run(steps=4)
    (tmp_path / "recipe.yaml").write_text(yaml.dump({"run": {}}))
    summary = run_local(run, tmp_path, track=("broken", "unborn"))
    out = capsys.readouterr().out
    assert summary.steps == 4 and len(JsonLines(tmp_path / "metrics.jsonl").read()) == 4
    assert out.count("broken failed and is no longer used: no route to host; the run continues") == 1
    assert out.count("unborn failed and is no longer used: api_key not configured") == 1


def test_a_run_logs_what_its_own_file_holds(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    exam = HeldOut(tasks=Rows(rows=[{"prompt": "1 + 1 =\n"}]), samples=1)
    (tmp_path / "recipe.yaml").write_text(config.dump(small_run(rewards=()), "small"))
    run_local(small_run(steps=2, held_out=exam), tmp_path, track=("tensorboard",))
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    rows = JsonLines(tmp_path / "metrics.jsonl").read()
    for name in ("reward/mean", "grad_norm", "tokens"):
        assert [e.value for e in events.Scalars(name)] == pytest.approx([row[name] for row in rows])
    assert [e.step for e in events.Scalars("eval/score")] == [0, 2]  # the evaluation before and after


def test_what_is_asked_for_is_known_and_installed(monkeypatch):
    assert asked(None) is None and asked("none") == () and asked(()) == ()
    with pytest.raises(ValueError, match="there is no tracker ''"):
        asked("")
    with pytest.raises(ValueError, match="there is no tracker wandbb; did you mean wandb"):
        asked("wandbb")
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError) as missing:
        asked("tensorboard, wandb")
    assert missing.value.name == "tensorboard"
    monkeypatch.setattr(trackers, "find_spec", lambda name: object())
    assert asked("tensorboard, wandb,tensorboard") == ("tensorboard", "wandb")
