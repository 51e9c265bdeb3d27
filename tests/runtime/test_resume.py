"""A killed run continues bit for bit: checkpoints are complete, atomic and checked."""

import itertools
import json
import resource
import shutil
import signal
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from small import Digits, rows, small_run

from gimbal import hangup
from gimbal.dataflow.curricula.tracked import Tracked
from gimbal.objectives.regularisers.entropy_smoothing import EntropySmoothing
from gimbal.policies.token import CausalLM
from gimbal.report.files import Summary, deterministic
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.expected import Expected
from gimbal.rewards.isolation import RewardError
from gimbal.runtime import checkpoint
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.run import HeldOut


def written(directory):
    found = [deterministic(json.loads(line)) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    rollouts = directory / "rollouts.jsonl"
    lines = rollouts.read_text().splitlines() if rollouts.exists() else ()
    return found, [deterministic(json.loads(line)) for line in lines]


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
        max_staleness=2,
        steps=6,
        record_every=2,
        engine=type(engine)(slots=9, precision="bfloat16", cache=cache),
        regularisers=(EntropySmoothing(coef=0.1, high=0.5),),  # which remembers
    )
    run_local(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(checkpoint.newest(tmp_path / "cut"))  # the one of the end: the run resumes from an earlier one
    assert checkpoint.newest(tmp_path / "cut").name == "step_000004"
    run_local(run, tmp_path / "cut", resume=True)
    assert written(tmp_path / "whole") == written(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")
    assert [line["memory/regularisers.0.steps.0"] for line in written(tmp_path / "cut")[0]] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_sigterm_end_at_a_checkpoint_and_nothing_is_lost(
    single_thread, tmp_path, monkeypatch, request, number, capfd
):
    run, calls, reward = small_run(max_staleness=1, steps=4, checkpoint_every=100), itertools.count(), Digits.__call__

    def interrupting(self, group):
        if next(calls) == 4:
            signal.raise_signal(number)
        return reward(self, group)

    monkeypatch.setattr(Digits, "__call__", interrupting)
    # Without the other half of it, since this terminal is that of the tests.
    monkeypatch.setattr(hangup, "mute", lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, which runs respect
    request.addfinalizer(lambda: signal.signal(signal.SIGHUP, before))
    with pytest.raises(KeyboardInterrupt, match=r"after step (\d); its checkpoint is .*step_00000\1"):
        run_local(run, tmp_path / "cut")
    heard = "gimbal: stopping after step 2, with a checkpoint; once more to stop now\n" in capfd.readouterr().err
    assert heard == (number != signal.SIGHUP), "at once; of a closed terminal nobody reads it"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert number != signal.SIGHUP or signal.getsignal(number) is signal.SIG_IGN, "a shell may send it again"
    assert 0 < len(written(tmp_path / "cut")[0]) < 4
    run_local(run, tmp_path / "cut", resume=True)
    run_local(run, tmp_path / "whole")
    assert written(tmp_path / "whole") == written(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")


def test_a_corrupted_checkpoint_is_passed_over_and_the_run_comes_to_the_same_bits(single_thread, tmp_path, capsys):
    run = small_run(steps=4, checkpoint_every=1, max_staleness=1, record_every=1)
    run_local(run, tmp_path / "whole")
    for name, spoilt in (("state", "step_000004/state.pt"), ("log", "metrics.jsonl")):
        directory = shutil.copytree(tmp_path / "whole", tmp_path / name)
        path = directory / spoilt if name == "log" else directory / "checkpoints" / spoilt
        path.write_bytes(path.read_bytes()[:-7] + b"garbage")
        capsys.readouterr()
        run_local(run, directory, resume=True)
        said = capsys.readouterr().out
        assert spoilt in said and "step_000003 is used instead" in said
        assert written(directory) == written(tmp_path / "whole") and weights(directory) == weights(tmp_path / "whole")
        assert checkpoint.newest(directory).name == "step_000004.2"
    for path in (directory / "checkpoints").glob("*/state.pt"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"step_000004\.2.*; .*step_000003.*corrupted; there is no other checkpoint"):
        run_local(run, directory, resume=True)


def test_the_weights_are_where_kernels_expect_them_whatever_file_they_came_from(single_thread, tmp_path):
    trainer = Trainer(small_run())
    for one in (trainer, Trainer(small_run(), trainer.save(tmp_path, {}))):
        assert {tensor.data_ptr() % 64 for tensor in one.learner.policy.parameters()} == {0}


@dataclass(frozen=True, kw_only=True)
class BreaksOnce(AbstractReward):
    """Digits; raises at its ``at``-th group, once."""

    name: str = "digits"
    at: int
    calls: list[int] = field(default_factory=list, compare=False)

    def __call__(self, group):
        self.calls.append(group.index)
        if len(self.calls) == self.at:
            raise RewardError("once")
        return Digits()(group)


@pytest.mark.parametrize("at", [2, 5])
def test_an_error_amid_finished_groups_changes_nothing_once_it_is_fixed(single_thread, tmp_path, at):
    """Both groups of a batch come out of the engine in one step; what the tasks of the next carry along depends on both."""
    run = small_run(curriculum=Tracked(name="digits"), rewards=(Digits(), Expected(column="expected", name="expected")))
    run = replace(run, tasks=rows(3), steps=4, max_staleness=1, record_every=1)
    run_local(run, tmp_path / "whole")
    broken = replace(run, rewards=(BreaksOnce(at=at), *run.rewards[1:]))
    with pytest.raises(RewardError):
        run_local(broken, tmp_path / "cut")
    held = checkpoint.load(checkpoint.newest(tmp_path / "cut"))["pipeline"]
    assert held["uncollected"] and [one for one in held["outstanding"].values() if one["state"] == "ready"], (
        "one is scored and one is not"
    )
    run_local(broken, tmp_path / "cut", resume=True)
    assert written(tmp_path / "whole") == written(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")


def test_a_run_counts_as_finished_only_once_its_model_is_there(single_thread, tmp_path, monkeypatch):
    run = small_run(steps=2)
    with monkeypatch.context() as patch:
        patch.setattr(Summary, "save", lambda summary, path: (path.parent / "model" / "model.safetensors").read_bytes())
        run_local(run, tmp_path)
    assert not (tmp_path / "summary.json").exists()
    run_local(run, tmp_path, resume=True)
    run_local(replace(run, steps=3), tmp_path, resume=True)
    newest = checkpoint.newest(tmp_path) / "model" / "model.safetensors"
    assert newest.read_bytes() == weights(tmp_path) and not list(tmp_path.glob(".*"))


def test_a_full_disk_leaves_the_previous_checkpoint(single_thread, tmp_path, monkeypatch):
    run_local(small_run(steps=2), tmp_path / "run")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    with pytest.raises(
        ValueError, match=r"state.pt could not be written: the disk is full; .*step_000002 is untouched"
    ):
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
        with pytest.raises(
            checkpoint.CheckpointError,
            match=r"model could not be written: this shell allows .*step_000001 is untouched",
        ):
            checkpoint.save(tmp_path, 2, policy, {}, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000001"]


@pytest.mark.slow
def test_an_evaluation_that_fails_costs_no_step(single_thread, tmp_path):
    """The one amid the run and the one at its end; a step's row waits for the figures, and the best model is chosen by them."""
    held_out = HeldOut(tasks=rows(1), samples=1, every=2, save_best="score", rewards=(Digits(),))
    run = small_run(steps=3, checkpoint_every=25, record_every=1, held_out=held_out)
    run_local(run, tmp_path / "whole")
    best = (tmp_path / "whole/best/evaluation.json").read_text()
    for at, step in ((3, 2), (5, 3)):  # two groups, sampled and greedy, before the first step
        place = tmp_path / str(at)
        broken = replace(run, held_out=replace(held_out, rewards=(BreaksOnce(at=at),)))
        with pytest.raises(RewardError):
            run_local(broken, place)
        assert checkpoint.step_of(checkpoint.newest(place)) == step
        run_local(broken, place, resume=True)
        assert written(tmp_path / "whole") == written(place) and weights(tmp_path / "whole") == weights(place)
        assert (place / "best/evaluation.json").read_text() == best
    assert "eval/score" in written(place)[0][1]
