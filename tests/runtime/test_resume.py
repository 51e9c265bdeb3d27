"""A killed run goes on to the same bits: checkpoints are complete, atomic and checked."""

import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from small import Digits, small_run

from gimbal.policies.token import CausalLM
from gimbal.report.files import deterministic
from gimbal.runtime import checkpoint
from gimbal.runtime.local import run_local

SCRIPT = """
import sys; sys.path.insert(0, {here!r})
from pathlib import Path
from small import small_run
from gimbal.runtime.local import run_local
run_local(small_run(max_staleness=2, steps=14, record_every=3, checkpoint_every=1), Path({directory!r}), resume={resume})
"""


def written(directory):
    rows = [deterministic(json.loads(line)) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return rows, (directory / "rollouts.jsonl").read_text() if (directory / "rollouts.jsonl").exists() else ""


def weights(directory):
    return (directory / "model" / "model.safetensors").read_bytes()


def test_two_runs_of_one_seed_are_identical(single_thread, tmp_path):
    for name in "ab":
        run_local(small_run(max_staleness=1, steps=4, record_every=2), tmp_path / name)
    assert written(tmp_path / "a") == written(tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


@pytest.mark.parametrize("cache", ["keep", "recompute"])
def test_resume_from_the_middle_is_the_uninterrupted_run(single_thread, tmp_path, cache):
    engine = small_run().engine
    run = small_run(
        max_staleness=2, steps=6, record_every=2, engine=type(engine)(slots=9, precision="bfloat16", cache=cache)
    )
    run_local(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(checkpoint.newest(tmp_path / "cut"))  # the one of the end: the run resumes from an earlier one
    assert checkpoint.newest(tmp_path / "cut").name == "step_000004"
    run_local(run, tmp_path / "cut", resume=True)
    assert written(tmp_path / "whole") == written(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_at_a_checkpoint_and_nothing_is_lost(single_thread, tmp_path, monkeypatch, number):
    run, calls, reward = small_run(max_staleness=1, steps=4, checkpoint_every=100), itertools.count(), Digits.__call__

    def interrupting(self, group):
        if next(calls) == 4:
            signal.raise_signal(number)
        return reward(self, group)

    monkeypatch.setattr(Digits, "__call__", interrupting)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match=r"after step (\d); its checkpoint is .*step_00000\1"):
        run_local(run, tmp_path / "cut")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert 0 < len(written(tmp_path / "cut")[0]) < 4
    run_local(run, tmp_path / "cut", resume=True)
    run_local(run, tmp_path / "whole")
    assert written(tmp_path / "whole") == written(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")


def test_a_corrupted_checkpoint_is_refused_by_name(single_thread, tmp_path):
    run_local(small_run(steps=2), tmp_path / "run")
    newest = checkpoint.newest(tmp_path / "run")
    state = newest / "state.pt"
    state.write_bytes(state.read_bytes()[:-7] + b"garbage")
    with pytest.raises(ValueError, match="corrupted"):
        run_local(small_run(steps=3), tmp_path / "run", resume=True)


def test_a_full_disk_leaves_the_previous_checkpoint(single_thread, tmp_path, monkeypatch):
    run_local(small_run(steps=2), tmp_path / "run")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    with pytest.raises(ValueError, match=r"No space left.*step_000002 is untouched"):
        run_local(small_run(steps=4), tmp_path / "run", resume=True)
    monkeypatch.undo()
    assert [path.name for path in checkpoint.all_of(tmp_path / "run")] == ["step_000002"]
    run_local(small_run(steps=4), tmp_path / "run", resume=True)


def test_weights_that_do_not_fit_leave_the_previous_checkpoint(tmp_path):
    """The system itself refuses the write, within safetensors."""
    policy = CausalLM().load()
    checkpoint.save(tmp_path, 1, policy, {}, keep=2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(checkpoint.CheckpointError, match=r"weights could not be written.*step_000001 is untouched"):
            checkpoint.save(tmp_path, 2, policy, {}, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000001"]


@pytest.mark.slow
def test_kill_minus_9_at_random_moments(tmp_path):
    def start(directory, resume):
        source = SCRIPT.format(here=str(HERE), directory=str(directory), resume=resume)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.DEVNULL, env=environment)

    assert start(tmp_path / "whole", False).wait() == 0
    draw, killed = random.Random(0), 0
    while not (tmp_path / "cut" / "summary.json").exists():
        process = start(tmp_path / "cut", True)
        if killed < 4:
            # With a checkpoint every step, a good part of these kills falls into a save.
            deadline = time.monotonic() + 60
            before = checkpoint.newest(tmp_path / "cut")
            while (
                checkpoint.newest(tmp_path / "cut") == before and process.poll() is None and time.monotonic() < deadline
            ):
                time.sleep(0.005)
            time.sleep(draw.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed == 4
    assert written(tmp_path / "whole") == written(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")
