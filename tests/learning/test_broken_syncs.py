"""Each kind of broken weight sync is refused at the load at which it happens, in this process and in others.

What is right is told without the proof: by an engine of its own that is loaded as it should be, tensor by tensor.
"""

import copy
import random
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "runtime")]
from broken import BITS, LABELS, VERSIONS, Breaks, Members, flipped_bit
from faulty import Here
from small import rows, small_run

from gimbal.engines.base import AbstractEngineAround, AbstractEngineSpec
from gimbal.engines.native import Native
from gimbal.engines.receipts import Receipt, tensors
from gimbal.learning.optimization import Optimization
from gimbal.learning.weight_sync.memory import Direct
from gimbal.learning.weight_sync.proof import DeliveryProof, NotDelivered
from gimbal.learning.weight_sync.receipts import Receipts, running
from gimbal.learning.weight_sync.sparse import Sparse
from gimbal.runtime.base import AbstractRuntimeSpec, AtOnce, Host
from gimbal.runtime.evaluate import evaluate_held_out
from gimbal.runtime.local import Trainer
from gimbal.runtime.members import Sampler
from gimbal.runtime.pool import PoolEngine
from gimbal.runtime.run import HeldOut
from gimbal.runtime.schedule import Schedule

PRECISIONS = ("float32", "bfloat16", "int8")
SYNCS = {
    "Direct": lambda precision: Direct(),
    "Sparse": lambda precision: Sparse(dtype="bfloat16" if precision == "bfloat16" else "float32"),
}


@cache
def trained(rate):
    """(policy, weights of each version, canary) of a real run."""
    torch.set_num_threads(1)
    trainer = Trainer(small_run(optimization=Optimization(learning_rate=rate), steps=VERSIONS))
    policy, states = trainer.learner.policy, []
    for version in range(VERSIONS + 1):
        states.append({name: tensor.clone() for name, tensor in policy.state_dict().items()})
        if version < VERSIONS:
            trainer.advance()
    return policy, states, trainer.deliveries[""].proof.canary


def bits(engine):
    return {
        name: (t.dtype, t.shape, t.reshape(-1).contiguous().view(torch.uint8).clone())
        for name, t in tensors(engine.copy.module).items()
    }


@cache
def right(rate, precision):
    """What a sampler should hold of each version."""
    policy, states, _ = trained(rate)
    policy.load_state_dict(states[0])
    engine, found = Native(slots=2, precision=precision).start(policy), []
    for version, state in enumerate(states):
        engine.load(version, state)
        found.append(bits(engine))
    return found


def same(one, other):
    return one.keys() == other.keys() and all(
        a[:2] == b[:2] and torch.equal(a[2], b[2]) for a, b in ((one[name], other[name]) for name in one)
    )


def happens_and_refused(kind, precision, rate, way):
    """(the first version at which a sampler is not what it should be, that at which the proof says so); None for never."""
    policy, states, canary = trained(rate)
    policy.load_state_dict(states[0])
    engine = (
        Breaks(precision=precision, kind=kind).start(policy) if way == "local" else Members(policy, precision, kind)
    )
    native = engine.native if way == "local" else engine.members[-1].engine.native
    sync = SYNCS["Direct" if way == "local" else way](precision).start()
    proof, happens = DeliveryProof(policy, canary, sync.travels), None
    for version in range(VERSIONS + 1):
        policy.load_state_dict(states[version])
        try:
            proof.receipts.still(engine)
            sync.publish(version, policy.weights())
            sync.deliver(engine)
            if happens is None and not (
                native.version == version and same(bits(native), right(rate, precision)[version])
            ):
                happens = version
            proof(engine, version)
        except NotDelivered:
            return happens, version
    return happens, None


# A bfloat16 sampler rounds so itself.
NO_FAULT = {("rounded to bfloat16 on the way", "bfloat16")}


FEW = [
    *(("local", precision, 1e-6) for precision in PRECISIONS),
    ("Direct", "int8", 1e-6),
    ("Sparse", "bfloat16", 1e-6),
]


MORE = [
    *(("local", precision, 1e-4) for precision in PRECISIONS),
    ("Direct", "float32", 1e-4),
    ("Sparse", "int8", 1e-4),
]


def at_once(kind, cells):
    for way, precision, rate in cells:
        happens, refused = happens_and_refused(kind, precision, rate, way)
        assert refused == happens, (way, precision, rate)
        assert (happens is None) == ((kind, precision) in NO_FAULT or kind == "nothing"), (way, precision, rate)


@pytest.mark.parametrize("kind", [*BITS, *LABELS, "nothing"])
def test_a_broken_sync_is_refused_at_the_load_at_which_it_happens(kind, single_thread):
    at_once(kind, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*BITS, *LABELS, "nothing"])
def test_at_a_larger_rate_too(kind, single_thread):
    at_once(kind, MORE)


def test_weights_rounded_on_the_way_by_choice_are_what_is_to_arrive(single_thread, monkeypatch):
    """A delta in bfloat16 for a sampler of int8."""
    monkeypatch.setitem(SYNCS, "Sparse", lambda precision: Sparse(dtype="bfloat16"))
    for kind, expected in (("nothing", None), ("one sync lost", 2)):
        assert happens_and_refused(kind, "int8", 1e-4, "Sparse")[1] == expected


def loaded(precision, policy, proof, version):
    """A sampler in this process, delivered and proved."""
    engine = Native(slots=2, precision=precision).start(policy)
    engine.load(version, policy.weights())
    proof(engine, version)
    return engine


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_changes_after_a_load_is_refused_before_the_next(precision, single_thread):
    policy, states, canary = trained(1e-6)
    policy.load_state_dict(states[0])
    proof = DeliveryProof(policy, canary)
    engine = loaded(precision, policy, proof, 0)
    proof.receipts.still(engine)
    flipped_bit(engine)
    with pytest.raises(NotDelivered, match=r"1 are no longer what was delivered, .*down_proj.weight \(other bits\)"):
        proof.receipts.still(engine)


def test_a_sampler_that_shares_the_trainers_memory_is_refused_as_the_trainer_moves(single_thread):
    policy, states, canary = trained(1e-6)
    policy.load_state_dict(states[0])
    proof = DeliveryProof(policy, canary)
    engine = loaded("float32", policy, proof, 0)
    engine.copy.module.model.norm.weight.data = policy.model.model.norm.weight.data
    proof.receipts.still(engine)
    policy.model.model.norm.weight.data[3] += 1e-3
    with pytest.raises(NotDelivered, match=r"1 are no longer what was delivered, model\.model\.norm"):
        proof.receipts.still(engine)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_forward_pass_that_does_not_use_what_is_held_is_refused_when_the_canary_is_asked(precision, single_thread):
    """At 1e-6, where no slope would tell: it says the same to the last bit although what it holds has moved."""
    policy, states, canary = trained(1e-6)
    policy.load_state_dict(states[0])
    engine, honest = (Native(slots=2, precision=precision).start(policy) for _ in range(2))
    proof, straight = DeliveryProof(policy, canary), DeliveryProof(policy, canary)
    prepared = copy.deepcopy(engine.copy.module)
    for version in (0, 1):
        policy.load_state_dict(states[version])
        for sampler, holds in ((honest, straight), (engine, proof)):
            sampler.load(version, policy.weights())
            if sampler is engine:
                engine.copy.module.forward = prepared.forward
            if version == 0 or sampler is honest:
                holds(sampler, version)
    with pytest.raises(
        NotDelivered,
        match=r"are not used: the sampler holds them, but its canary log-probabilities equal those of version 0",
    ):
        proof(engine, 1)


def test_the_same_version_twice_is_no_fault(single_thread):
    policy, states, canary = trained(1e-6)
    policy.load_state_dict(states[0])
    proof, engine = DeliveryProof(policy, canary), Members(policy, "int8", "nothing")
    for _ in range(2):
        engine.load(0, policy.weights())
        proof(engine, 0)


@pytest.mark.parametrize(
    "sent, said",
    [
        ([(0, 1), (0,), (0, 1)], "of worker 1 loaded version 2 after version 0, where version 1 was to come"),
        ([(0, 1), (0, 1), "again 0"], "of worker 0 loaded version 0 after version 1"),
        (
            [(0, 1), "again 7"],
            "of worker 0 answers for version 7, which was not sent recently|where version 0 was to come",
        ),
    ],
)
def test_a_worker_whose_versions_do_not_follow_one_another_is_refused(sent, said, single_thread):
    policy, states, _ = trained(1e-6)
    policy.load_state_dict(states[0])
    receipts, engine = Receipts(policy), Members(policy, "float32", "nothing")
    both = engine.members
    with pytest.raises(NotDelivered, match=said):
        for version, who in enumerate(sent):
            if isinstance(who, str):
                version, who = int(who[-1]), (0, 1)
            engine.members = [both[i] for i in who]
            engine.load(version, policy.weights())
            if version == 7:
                receipts.heard(engine)
            receipts.arrived(engine, version)


def test_a_worker_that_was_not_sent_the_newest_version_is_refused(single_thread):
    """A real pool that leaves one of its workers out."""
    policy, states, _ = trained(1e-6)
    policy.load_state_dict(states[0])
    engine, receipts = pool(policy, "nothing"), Receipts(policy)
    try:
        engine.load(0, policy.weights())
        receipts.arrived(engine, 0)
        inner = engine._load
        engine._load = lambda worker, stored: inner(worker, stored) if worker == 0 else None
        engine.load(1, policy.weights())
        with pytest.raises(NotDelivered, match="worker 1 has loaded version 0 of the weights and was not sent 1"):
            receipts.arrived(engine, 1)
    finally:
        engine.close()


def pool(policy, kind, workers=2):
    backend = Here(Sampler, (policy, Breaks(precision="int8", kind=kind), 1), random.Random(0), {})
    return PoolEngine(backend, Schedule(), workers=workers, patience=60.0, note=lambda sentence: None)


@dataclass(frozen=True, kw_only=True)
class Pooled(AbstractRuntimeSpec):
    """A pool whose workers are in this process."""

    def open(self, wanted):
        engine = PoolEngine(
            Here(Sampler, (wanted.policy, wanted.engine, 1), random.Random(0), {}),
            Schedule(),
            workers=2,
            patience=60.0,
            note=wanted.note,
        )
        return Host(engine=engine, scorer=AtOnce(wanted.opened), close=engine.close)


@pytest.mark.parametrize("sync", [Direct(), Sparse(dtype="float32")])
def test_a_run_whose_workers_get_no_weights_stops_at_the_first_sync(sync, single_thread):
    rate = Optimization(learning_rate=1e-6)
    for kind, steps in (("nothing", 3), ("never arrives", 2)):  # version 2 is the first that does not
        run = small_run(engine=Breaks(precision="int8", kind=kind), runtime=Pooled(), sync=sync, optimization=rate)
        trainer = Trainer(run)
        try:
            for _ in range(steps):
                trainer.advance()
            assert kind == "nothing"
        except NotDelivered as error:
            assert kind != "nothing" and trainer.learner.version == 2 and "of worker" in str(error)
        finally:
            trainer.close()


def test_what_a_wrong_worker_drew_is_not_trained_on(single_thread, monkeypatch):
    """A worker that answers late is refused before the learner's next step, not after it."""
    trainer = Trainer(small_run())
    trainer.begin()
    before = trainer.learner.version
    wrong = replace(trainer.engine.reading(), prints={})
    receipt = Receipt(who="worker 0", due=0, before=None, after=wrong)
    monkeypatch.setattr(trainer.engine, "heard", lambda wait: [receipt])
    with pytest.raises(NotDelivered, match="missing"):
        trainer.advance()
    assert trainer.learner.version == before


class Stale(AbstractEngineAround):
    """An evaluation engine that continues with what it was first made of; ``shown``: whether it can be read."""

    def __init__(self, inner, first, shown):
        self.inner, self.first, self.shown = inner, first, shown

    def load(self, version, state):
        self.inner.load(version, self.first)

    @property
    def form(self):
        return self.inner.form if self.shown else None


@dataclass(frozen=True, kw_only=True)
class StaleSpec(AbstractEngineSpec):
    first: object
    shown: bool

    def start(self, policy):
        return Stale(Native(slots=8).start(policy), self.first or policy.state_dict(), self.shown)


@pytest.mark.parametrize("shown", [True, False])
def test_an_evaluation_is_of_the_weights_that_it_is_said_to_be_of(shown, single_thread):
    policy, states, _ = trained(1e-4)
    policy.load_state_dict(states[0])
    held_out = HeldOut(tasks=rows(2), samples=2)
    run = small_run(held_out=replace(held_out, engine=StaleSpec(first=None, shown=shown)))
    assert evaluate_held_out(run, policy).tasks == 2
    other = {
        name: tensor + 1e-2 for name, tensor in states[0].items()
    }  # by the canary alone it takes a larger difference
    wrong = states[1] if shown else other
    with pytest.raises(NotDelivered, match="were not delivered"):
        evaluate_held_out(small_run(held_out=replace(held_out, engine=StaleSpec(first=wrong, shown=shown))), policy)


def test_what_changes_during_an_evaluation_is_refused_at_its_end(single_thread, monkeypatch):
    policy, states, _ = trained(1e-4)
    policy.load_state_dict(states[0])
    engine = Native(slots=2).start(policy)
    with pytest.raises(NotDelivered, match="no longer what was delivered"), running(engine, policy):
        flipped_bit(engine)
