"""Real Ray, real actors: the same weights as without it, and nothing lost, doubled or too old whatever becomes of the actors."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "learning")]
import four
from broken import Breaks
from faulty import Counting, CountingEngine, Nothing, SampleIsScore, closed, drive, wired
from small import agent_run, denoising_run, distilled_run, masked_run, small_run, terminal_run

from gimbal import cli, recipes
from gimbal.config import Text
from gimbal.engines.base import AbstractEngineSpec
from gimbal.engines.native import Native
from gimbal.learning.optimization import Optimization
from gimbal.learning.weight_sync.receipts import NotDelivered
from gimbal.learning.weight_sync.sparse import Sparse
from gimbal.ops.activity import doing
from gimbal.runtime import checkpoint
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.members import Judge, Sampler
from gimbal.runtime.ray import Ray, RayBackend
from gimbal.runtime.repeat import compared, replayed
from gimbal.workflows.fixed_splits import FixedSplits
from gimbal.workflows.single import SingleTurn

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    context = ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield context.address_info["address"]
    ray.shutdown()


def sampler(spec, cpus=0.0):
    return RayBackend(Sampler, (Nothing(), spec, 1), cpus=cpus, gpus=0.0)


def judge(reward):
    return RayBackend(Judge, ([reward],), cpus=0.0, gpus=0.0)


def trained(steps=4, between=lambda trainer: None, small=small_run, **changes):
    trainer = Trainer(small(**changes))
    try:
        trainer.begin()
        while "runtime" in changes and len(trainer.engine.workers) < changes["runtime"].workers:
            time.sleep(0.05)  # a run begins with the first that is there
        metrics = []
        for _ in range(steps):
            metrics.append(trainer.advance()[0])
            between(trainer)
        return metrics, {name: tensor.clone() for name, tensor in trainer.learner.policy.state_dict().items()}
    finally:
        trainer.close()


def test_staleness_0_reaches_the_weights_of_the_local_run(single_thread, cluster):
    ours, weights = trained(runtime=Ray(workers=2))
    theirs, expected = trained()
    assert [m["loss"] for m in ours] == [m["loss"] for m in theirs]
    for name, tensor in weights.items():
        assert torch.equal(tensor, expected[name]), name
    assert all(m["sync/receipts"] == 2 for m in ours[1:]), "every worker is proved before the next batch"
    assert ours[0]["sync/gap"] < 1e-5


@pytest.mark.parametrize(
    ("small", "workflow"),
    [(denoising_run, SingleTurn()), (denoising_run, FixedSplits(splits=(1, 2))), (distilled_run, SingleTurn())],
    ids=["paths", "paths that split", "distilled"],
)
def test_a_model_that_denoises_reaches_the_weights_of_the_local_run(single_thread, cluster, small, workflow):
    pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
    _same_as_local({"small": small, "max_staleness": 0, "workflow": workflow})


FEW = {"store.learning_starts": "20", "store.minibatch": "16"}


@pytest.mark.parametrize(
    ("name", "workers", "changes"),
    [
        ("cartpole", 2, {"prompts_per_step": "4"}),
        ("sac", 1, FEW),  # segments: several workers would each go on with an episode of their own
        ("sac", 2, {**FEW, "prompts_per_step": "2", "engine.segment": "0", "store.update_to_data": "0.05"}),
        ("dqn", 1, FEW),
    ],
    ids=["whole episodes", "segments", "whole episodes from a buffer", "choices"],
)
def test_a_control_policy_reaches_the_weights_of_the_local_run(single_thread, cluster, name, workers, changes):
    pytest.importorskip("gymnasium")
    run = recipes.load(name, {key: Text(value) for key, value in {**changes, "held_out": "none"}.items()})
    (ours, weights), (theirs, expected) = (
        trained(small=partial(replace, run), max_staleness=0, **how) for how in ({"runtime": Ray(workers=workers)}, {})
    )
    assert [m["reward/mean"] for m in ours] == [m["reward/mean"] for m in theirs] and ours[-1]["grad_norm"] > 0
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights.items())
    assert all(m["sync/receipts"] == workers for m in ours[1:])


def test_actors_of_a_control_policy_lag_behind_their_learner_as_far_as_they_may(single_thread, cluster):
    pytest.importorskip("gymnasium")
    run = recipes.load("sac", {key: Text(value) for key, value in {**FEW, "held_out": "none"}.items()})
    metrics, _ = trained(6, small=partial(replace, run), max_staleness=1, prompts_per_step=4, runtime=Ray(workers=2))
    assert metrics[0]["replay/lag_max"] == 0 and max(m["replay/lag_max"] for m in metrics) == 1
    assert metrics[-1]["staleness/max"] > 1, "what is replayed is older"


def test_a_model_that_fills_in_masked_text_reaches_the_weights_of_the_local_run(single_thread, cluster):
    _same_as_local({"small": masked_run, "max_staleness": 0})


@pytest.mark.parametrize("small", [terminal_run, agent_run])
def test_episodes_that_act_reach_the_weights_of_the_local_run(single_thread, cluster, small):
    """Each worker has the sandboxes and the agents of its episodes."""
    _same_as_local({"small": small, "max_staleness": 0})


def _same_as_local(fresh):
    ours, weights = trained(runtime=Ray(workers=2), **fresh)
    theirs, expected = trained(**fresh)
    assert [m["loss"] for m in ours] == [m["loss"] for m in theirs]
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights.items())
    assert all(m["sync/receipts"] == 2 for m in ours[1:])


def test_the_recipe_that_is_run_four_ways_is_that_of_one_process_bit_for_bit(single_thread, cluster):
    """The two ways of vLLM: tests/engines/test_four_ways.py."""
    ours, theirs = four.run(runtime=Ray(workers=2)), four.run()
    assert ours[1] == theirs[1] and [m["loss"] for m in ours[0]] == [m["loss"] for m in theirs[0]]
    assert all(torch.equal(tensor, theirs[3][name]) for name, tensor in ours[3].items())


def test_weights_that_never_arrive_at_a_worker_stop_the_run_at_that_sync(single_thread, cluster):
    """At a learning rate of 1e-6, at which the canary of an int8 sampler would tell nothing for long."""
    rate = Optimization(learning_rate=1e-6)
    engine = Breaks(precision="int8", kind="never arrives")  # from version 2 on, and says that they did
    trainer = Trainer(small_run(runtime=Ray(workers=1), engine=engine, optimization=rate))
    try:
        trainer.advance()
        with pytest.raises(NotDelivered, match=r"weights of version 2 were not delivered: .* of worker"):
            trainer.advance()
    finally:
        trainer.close()


def test_packets_through_the_object_store_and_whole_weights_for_who_comes_anew(single_thread, cluster):
    """At a small learning rate little travels; what replaces a killed worker gets everything; the same bits as locally."""
    sparse = {"sync": Sparse(), "engine": Native(slots=12, precision="bfloat16")}
    sparse["optimization"] = Optimization(learning_rate=1e-6)

    def kill(trainer):
        fleet = trainer.engine.fleet
        if trainer.learner.version == 2:
            first = min(fleet.members)
            handle = fleet.members[first].handle
            ray.kill(handle)
            # A kill takes a moment, and what is called before it has come is still answered.
            with pytest.raises(ray.exceptions.RayActorError):
                while True:
                    ray.get(handle.doing.remote())
            fleet.call(first, "start")  # it is idle: only who calls it finds out
            while first in fleet.members or len(trainer.engine.workers) < 2:
                time.sleep(0.05)

    ours, weights = trained(runtime=Ray(workers=2), between=kill, **sparse)
    theirs, expected = trained(**sparse)
    assert [m["loss"] for m in ours] == [m["loss"] for m in theirs]
    for name, tensor in weights.items():
        assert torch.equal(tensor, expected[name]), name
    whole = sum(tensor.nbytes for tensor in expected.values()) / 2  # in bfloat16
    two = 2 * torch.tensor([m["sync/bytes"] for m in ours])
    moved = torch.tensor([m["pool/weight_bytes"] for m in ours])
    assert moved[0] > 2 * whole * 0.9 and whole * 0.9 < moved[2] - two[2] < whole * 1.1, (moved, whole)
    assert moved[1] == two[1] and moved[3] == two[3] and max(moved[1], moved[3]) < whole / 5, (moved, whole)


def test_parts_of_a_users_own_file(cluster, tmp_path, monkeypatch):
    """Its tool acts in a worker, its functions in a scorer, and neither process can import the file by its name."""
    for name in ("parts.py", "scores.py"):
        shutil.copy(HERE.parent / "users" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    parts = ["workflow.tool=parts.py:Shout(said='7')", "tasks=parts.py:Sums(size=6)", "rewards.1=scores.py:brevity"]
    assert cli.main(["train", "parts.py:recipe", *parts, "runtime=ray", "runtime.workers=1", "--name", "own"]) == 0
    assert '"brevity": ' in (tmp_path / "runs" / "own" / "rollouts.jsonl").read_text()


def test_kills_delays_and_joins(cluster):
    """No decision too old, lost or doubled while actors are killed, added and removed at random and steps take random time."""
    spec = Counting(delay=0.004)
    pipeline = wired(sampler(spec), judge(SampleIsScore()), k=2, scorers=1)
    engine, draw, kills = pipeline.parts.engine, random.Random(0), []

    def kill(fleet):
        with fleet.changed:
            up = [member for member, one in fleet.members.items() if one.up]
            if up:
                kills.append(up[0])
                ray.kill(fleet.members[draw.choice(up)].handle)

    def between(version):
        if version % 8 == 3:
            kill(engine.fleet)
        if version == 20:
            kill(pipeline.parts.scorer.fleet)
        if version == 10:
            engine.add()
        if version == 25 and len(engine.workers) > 1:
            engine.remove(engine.workers[0])

    try:
        account = drive(pipeline, 30, k=2, between=between)
    finally:
        closed(pipeline)
    assert len(kills) >= 4 and account["repeated"] > 0 and max(account["ages"]) == 2, (kills, account)


@dataclass(frozen=True, kw_only=True)
class OnceStuck(AbstractEngineSpec):
    """The first worker to be asked for task 3 never returns from it."""

    mark: str

    def start(self, policy):
        engine = CountingEngine(Counting())
        step = engine.step

        def stuck():
            tasks = [request.task.id for request, *_ in engine.live.values()]
            if "rows-3" in tasks or any(task.endswith("3") for task in tasks):
                try:
                    os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return step()
                with doing("tool search", task="3", turn=2):
                    time.sleep(600)
            return step()

        engine.step = stuck
        return engine


def test_a_hung_worker_is_named_and_its_work_done_elsewhere(cluster, tmp_path):
    notes = []
    stuck = sampler(OnceStuck(mark=str(tmp_path / "mark")))
    pipeline = wired(stuck, judge(SampleIsScore()), k=1, scorers=1, patience=1.0, note=notes.append)
    try:
        account = drive(pipeline, 12, k=1)
    finally:
        closed(pipeline)
    assert account["repeated"] > 0 and account["consumed"] == 24
    assert len(notes) == 1 and "tool search for task 3, turn 2" in notes[0] and "is replaced" in notes[0], notes


@dataclass(frozen=True, kw_only=True)
class NeverAtFirst(SampleIsScore):
    """The first call about group 2 does not return."""

    mark: str

    def __call__(self, group):
        if group.index == 2 and not Path(self.mark).exists():
            Path(self.mark).touch()
            time.sleep(600)
        return super().__call__(group)


def test_a_reward_that_never_returns(cluster, tmp_path):
    notes = []
    reward = NeverAtFirst(mark=str(tmp_path / "mark"))
    pipeline = wired(sampler(Counting()), judge(reward), k=2, workers=1, scorers=2, patience=1.0, note=notes.append)
    try:
        account = drive(pipeline, 12, k=2)
    finally:
        closed(pipeline)
    assert account["consumed"] == 24 and not pipeline.drops
    assert len(notes) == 1 and "reward sample for task" in notes[0], notes


LEARNER = """
import sys; sys.path.insert(0, {here!r})
import ray; ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
from pathlib import Path
from small import {run}
from gimbal.runtime.local import run_local
from gimbal.runtime.ray import Ray
run_local({run}(max_staleness=2, steps=100000, checkpoint_every=1, runtime=Ray(workers=2)), Path({directory!r}))
"""


@pytest.mark.parametrize("small", [small_run, denoising_run, terminal_run, agent_run])
def test_a_dead_learner_resumes_from_its_checkpoint_and_its_run_is_replayed(single_thread, cluster, tmp_path, small):
    if small is denoising_run:
        pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
    directory = tmp_path / "run"
    source = LEARNER.format(here=str(HERE), address=cluster, directory=str(directory), run=small.__name__)
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300  # a busy machine
    while checkpoint.newest(directory) is None or checkpoint.newest(directory).name < "step_000003":
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = checkpoint.newest(directory)
    stored = checkpoint.load(found)["pipeline"]
    outstanding = set(stored["outstanding"])
    assert outstanding, "the store goes with the checkpoint"
    steps = int(found.name[-6:]) + 3
    run = small(max_staleness=2, steps=steps, runtime=Ray(workers=2))
    run_local(run, directory, resume=True)
    run_local(replayed(run, directory), tmp_path / "again")
    assert compared(directory, tmp_path / "again") == f"all {steps} batches equal those of {directory}, bit for bit"
    models = [[*(path / "model").rglob("*.safetensors")] for path in (directory, tmp_path / "again")]
    (one,), (other,) = models
    assert one.read_bytes() == other.read_bytes(), "learner killed, resumed and replayed: the same weights"
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, steps + 1)) and max(row["staleness/max"] for row in rows) <= 2
