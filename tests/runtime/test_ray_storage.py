"""Real Ray whose object store is full, and whose nodes are lost: the run continues, or ends with one sentence and can be resumed."""

import contextlib
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from faulty import Counting, Nothing, SampleIsScore, closed, drive, wired
from small import small_run

import gimbal.runtime.ray
from gimbal.engines.base import Unserved
from gimbal.engines.native import Native
from gimbal.learning.weight_sync.base import AbstractWeightSync, AbstractWeightSyncSpec
from gimbal.learning.weight_sync.memory import Memory
from gimbal.policies.token import Sampling
from gimbal.report.files import JsonLines
from gimbal.runtime import checkpoint
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.members import Judge, Sampler
from gimbal.runtime.ray import Ray, RayBackend

ray = pytest.importorskip("ray")
Cluster = pytest.importorskip("ray.cluster_utils").Cluster
pytestmark = pytest.mark.slow

STORE = 80_000_000  # bytes; Ray refuses less than 75 MB


@pytest.fixture
def two_nodes():
    """The head and another node, with room for one worker each."""
    # A lost node is noticed in 3 s and not in 15.
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 6}
    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False, "_system_config": quick}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    away = cluster.add_node(num_cpus=1, object_store_memory=STORE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster, away
    ray.shutdown()
    cluster.shutdown()


def test_a_lost_node_is_named_and_the_run_goes_on_with_the_rest(two_nodes):
    cluster, away = two_nodes
    notes, consumed, after = [], Counter(), 0
    # Workers slower than the learner, so that a lost one holds something.
    slow = {"engine": Native(slots=1, precision="float32"), "sampling": Sampling(max_length=40)}
    trainer = Trainer(small_run(max_staleness=2, runtime=Ray(workers=2), **slow), note=notes.append)
    pipeline = trainer.pipeline
    try:
        while after < 3:
            metrics, groups, _ = trainer.advance()
            consumed.update(group.index for group in groups)
            assert metrics["staleness/max"] <= 2 and all(len(group.rollouts) == 4 for group in groups)
            if trainer.learner.version == 3:
                assert len(trainer.engine.workers) == 2
                cluster.remove_node(away, allow_graceful=False)
            after += any(note.startswith(f"node {away.node_id[:8]}") for note in notes)
        assert metrics["pool/workers"] == 1 and metrics["pool/repeated"] > 0
    finally:
        trainer.close()
    assert sum(note.startswith("worker") for note in notes) == 1, notes
    there = set(pipeline.outstanding)
    assert max(consumed.values()) == 1 and not pipeline.drops
    assert {*consumed, *there} == set(range(pipeline.dispatched)) and not there & consumed.keys()


@pytest.fixture
def small_store():
    """A store of 80 MB, and no disk beside it: nothing is spilled, and from a share of 0.0001 on Ray takes the disk for full."""
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _system_config={
            "automatic_object_spilling_enabled": False,
            "local_fs_capacity_threshold": 0.0001,
            "local_fs_monitor_interval_ms": 100,
        },
    )
    yield
    ray.shutdown()


class Fat(AbstractWeightSync):
    """With so many bytes beside the weights."""

    def __init__(self, size):
        self.inner, self.ballast = Memory(), torch.zeros(size, dtype=torch.uint8)

    def publish(self, version, state):
        self.inner.publish(version, {**state, "ballast": self.ballast})

    def deliver(self, engine):
        self.inner.deliver(engine)


HELD = []  # what fills the store


def fill():
    for size in (8_000_000, 1_000_000, 200_000):
        with contextlib.suppress(ray.exceptions.OutOfDiskError):
            while True:
                HELD.append(ray.put(np.ones(size, dtype=np.uint8)))


def test_weights_and_rollouts_beyond_the_store_wait_for_room(small_store, monkeypatch):
    """Full before the first weights, which wait; then three versions of 22 MB and rollouts of 1 MB do not fit. Nothing is lost or
    doubled, and the bound on the age holds."""
    met, full = [], gimbal.runtime.ray._full
    monkeypatch.setattr(gimbal.runtime.ray, "_full", lambda: met.append(1) or HELD.clear() or full())
    samplers = RayBackend(Sampler, (Nothing(), Counting(delay=0.05, size=1_000_000), 1), cpus=0.0, gpus=0.0)
    judges = RayBackend(Judge, ([SampleIsScore()],), cpus=0.0, gpus=0.0)
    pipeline = wired(samplers, judges, k=3, scorers=1)
    fill()
    try:
        account = drive(pipeline, 20, k=3, sync=Fat(22_000_000))
    finally:
        closed(pipeline)
    assert met and not HELD, "the store was full at the first weights"
    assert account["consumed"] == 40 and max(account["ages"]) == 3


@dataclass(frozen=True, kw_only=True)
class Filling(AbstractWeightSyncSpec, AbstractWeightSync):
    """Fills the store before version ``at`` is put into it. Whole weights travel."""

    at: int
    inner: Memory = field(default_factory=Memory, init=False)

    def start(self):
        return self

    def publish(self, version, state):
        if version == self.at:
            fill()
        self.inner.publish(version, state)

    def deliver(self, engine):
        self.inner.deliver(engine)


def test_a_store_that_stays_full_ends_the_run_which_resumes_to_the_same_bits(
    single_thread, small_store, monkeypatch, tmp_path
):
    monkeypatch.setattr(gimbal.runtime.ray, "ROOM_SECONDS", 1.0)
    run, whole = small_run(steps=5, checkpoint_every=100, runtime=Ray(workers=1)), small_run(steps=5)
    with pytest.raises(Unserved, match=r"object store has been full for 1 s.*continue with --resume"):
        run_local(replace(run, sync=Filling(at=3)), tmp_path / "run")
    assert checkpoint.newest(tmp_path / "run").name == "step_000003", "the step that could not be delivered is whole"
    HELD.clear()
    run_local(run, tmp_path / "run", resume=True)
    run_local(whole, tmp_path / "never stopped")
    runs = [tmp_path / "run", tmp_path / "never stopped"]
    losses = [[row["loss"] for row in JsonLines(one / "metrics.jsonl").read()] for one in runs]
    weights = [(one / "model" / "model.safetensors").read_bytes() for one in runs]
    assert len(losses[0]) == 5 and losses[0] == losses[1] and weights[0] == weights[1]
