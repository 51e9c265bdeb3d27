"""The pool held against random faults by the hundred: each request comes out once, no decision is too old, nothing hangs."""

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from faulty import Counting, Here, Nothing, SampleIsScore, closed, drive, members, weights, wired

from gimbal.engines.base import Request
from gimbal.learning.weight_sync.delta import Packet
from gimbal.learning.weight_sync.sparse import DeltaSync
from gimbal.policies.token import Sampling
from gimbal.records import Task
from gimbal.runtime import fleet
from gimbal.runtime.ledger import Ledger, Overtaken
from gimbal.runtime.members import Judge, Sampler, packed, unpacked

FAULTS = {"dies before": 0.05, "dies after": 0.05, "hangs": 0.01}


def request(group, sample=0):
    return Request(group=group, task=Task(id=str(group)), sample=sample, sampling=Sampling(), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_faults_by_the_hundred(monkeypatch, k, seed):
    """At least 84 faults each, 1,000 in all: deaths before and after the work is done, hangs, workers that join and leave."""
    monkeypatch.setattr(fleet, "LOSSES_IN_A_ROW", 10**6)
    backends = members(FAULTS, seed)
    pipeline = wired(*backends, k=k, patience=0.01)
    engine, draw = pipeline.parts.engine, random.Random(seed)
    monkeypatch.setattr("gimbal.runtime.pool.TRIES", 10**6)

    def between(version):
        if draw.random() < 0.1:
            engine.add()
        with engine.fleet.changed:  # nobody dies between the choice and the removal
            if draw.random() < 0.1 and len(engine.workers) > 1:
                engine.remove(draw.choice(engine.workers))

    try:
        account = drive(pipeline, 160, k=k, between=between)
    finally:
        closed(pipeline)
    injected = sum((backend.faults for backend in backends), start=type(backends[0].faults)())
    assert injected.total() >= 84 and set(injected) == set(FAULTS), injected  # 12 x 84 > 1,000
    assert account["repeated"] > 0 and account["consumed"] == 320
    assert max(account["ages"]) == k  # the bound is reached, so a test of it means something


class Damaging(Here):
    """Its store damages a packet now and then."""

    def put(self, value):
        if isinstance(value, Packet) and self.draw.random() < 0.2:
            self.faults["packet damaged"] += 1
            return replace(value, buckets=(value.buckets[0][:-1] + b"?",))
        return value


def test_packets_reach_members_that_die_join_and_are_sent_damaged_ones(monkeypatch):
    """A member gets what it lacks: the delta, or all weights if it has just come; one in doubt is ended before it draws."""
    monkeypatch.setattr(fleet, "LOSSES_IN_A_ROW", 10**6)
    monkeypatch.setattr("gimbal.runtime.pool.TRIES", 10**6)
    _, judges = members({}, 0)
    samplers = Damaging(Sampler, (Nothing(), Counting(), 1), random.Random(0), FAULTS)
    sent, notes, call = [], [], samplers.call

    def noted(handle, method, arguments):
        if method == "load_packets":
            sent.append([packet.base is None for packet in arguments[1:]])
        return call(handle, method, arguments)

    samplers.call = noted
    pipeline = wired(samplers, judges, k=2, patience=0.01, note=notes.append)
    try:
        account = drive(pipeline, 60, k=2, sync=DeltaSync(torch.float32))
        moved = pipeline.parts.engine.metrics()["pool/weight_bytes"]
    finally:
        closed(pipeline)
    assert account["consumed"] == 120 and max(account["ages"]) == 2
    assert samplers.faults["packet damaged"] > 5 and any("is damaged; ask for it again" in note for note in notes)
    assert all(len(packets) == 1 for packets in sent) and [True] in sent and sent.count([False]) > 30, sent
    whole = sum(tensor.nbytes for tensor in weights(0).values())
    assert sent.count([True]) * whole < moved < len(sent) * whole, "most of what was sent is small"


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 2])
def test_unfinished_surplus_is_begun_anew(monkeypatch, k):
    """Twice as many groups as are wanted, steps without the last of them; these are taken back, given out first, and accounted for."""
    monkeypatch.setattr(fleet, "LOSSES_IN_A_ROW", 10**6)
    monkeypatch.setattr("gimbal.runtime.pool.TRIES", 10**6)
    monkeypatch.setattr("gimbal.runtime.pool.ADVANCE_SECONDS", 0.0)  # a step at a time, so that something is unfinished
    pipeline = wired(*members(FAULTS, 0), k=k, patience=0.01, surplus="recycle")
    given, back, submit = [], [], pipeline.parts.engine.submit
    pipeline.parts.engine.submit = lambda one: (given.append(one), submit(one))
    lose = pipeline._lose
    pipeline._lose = lambda index, reason: (
        back.append((reason, pipeline.outstanding[index].task, len(given))),
        lose(index, reason),
    )
    try:
        account = drive(pipeline, 60, k=k)
    finally:
        closed(pipeline)
    taken = [(task, at) for reason, task, at in back if reason == "recycled"]
    assert len(taken) == pipeline.drops["recycled"] > 5 and max(account["ages"]) == k
    task, at = taken[0]
    assert given[at].task == task, "it is the next to be given out"
    assert wired_waits(k) == 0


def wired_waits(k):
    """Groups taken back where surplus is waited for."""
    pipeline = wired(*members({}, 0), k=k)
    pipeline.oversampling = 2.0
    try:
        drive(pipeline, 10, k=k)
    finally:
        closed(pipeline)
    return pipeline.drops["recycled"]


def test_a_pool_that_forgets_is_caught(monkeypatch):
    """The same without the taking back of what a dead worker held: the pipeline waits for it, and would for ever."""
    monkeypatch.setattr(Ledger, "leave", lambda self, worker: self.load.pop(worker) and [])
    monkeypatch.setattr(fleet, "LOSSES_IN_A_ROW", 10**6)
    pipeline, empty = wired(*members({"dies before": 0.1}, 0), k=1), []
    step = pipeline.parts.engine.step

    def patient():
        finished = step()
        empty.append(not finished)
        if all(empty[-20:]) and len(empty) > 20:
            raise TimeoutError("nothing comes any more")
        return finished

    pipeline.parts.engine.step = patient
    try:
        with pytest.raises(TimeoutError, match="nothing comes"):
            drive(pipeline, 200, k=1)
    finally:
        closed(pipeline)


def test_an_answer_counts_once_and_only_under_its_newest_ticket():
    ledger = Ledger()
    ledger.enter(request(0))
    assert ledger.hand_out(0) == {}  # no worker yet
    ledger.join(0)
    first = ledger.hand_out(0)[0][0]
    ledger.leave(0)
    ledger.join(1)
    second = ledger.hand_out(3)[1][0]
    assert not ledger.finish(0, first.number, (0, 0), 0)  # from beyond the grave
    assert not ledger.finish(1, first.number, (0, 0), 0)
    assert ledger.finish(1, second.number, (0, 0), 3)
    assert not ledger.finish(1, second.number, (0, 0), 3)
    assert (ledger.open, ledger.repeated, ledger.late) == (0, 1, 3)


def test_requests_go_to_the_least_loaded():
    ledger = Ledger()
    for worker in range(3):
        ledger.join(worker)
    for group in range(7):
        ledger.enter(request(group))
    given = ledger.hand_out(0)
    assert [len(given[worker]) for worker in range(3)] == [3, 2, 2]
    ledger.join(3)
    for group in range(7, 9):
        ledger.enter(request(group))
    assert [len(given) for given in ledger.hand_out(0).values()] == [2]


def test_a_group_that_is_one_attempt_stays_together():
    ledger = Ledger(together=True)
    for worker in range(2):
        ledger.join(worker)
    for group in range(4):
        for sample in range(3):
            ledger.enter(request(group, sample))
    homes = {worker: {ticket.request.group for ticket in given} for worker, given in ledger.hand_out(0).items()}
    assert [len(groups) for groups in homes.values()] == [2, 2] and not homes[0] & homes[1]
    ledger.leave(0)
    again = ledger.hand_out(0)
    assert {ticket.request.group for ticket in again[1]} == homes[0]


def test_a_decision_older_than_its_request_is_refused():
    ledger = Ledger()
    ledger.join(0)
    ledger.enter(request(0))
    ticket = ledger.hand_out(5)[0][0]
    with pytest.raises(Overtaken, match="after version 5, and drawn by 4"):
        ledger.finish(0, ticket.number, (0, 0), 4)


def test_cancelled_requests_are_gone_wherever_they_are():
    backends = members({}, 0)
    pipeline = wired(*backends, k=1)
    engine = pipeline.parts.engine
    engine.load(0, weights(0))
    for group in range(8):
        engine.submit(request(group))
    engine.cancel((0, 0))
    done = engine.step()
    engine.cancel((7, 0))
    while engine.in_flight:
        done += engine.step()
    closed(pipeline)
    keys = [item.key[0] for item in done]
    assert sorted(keys) == sorted(set(keys)) and set(range(1, 7)) <= set(keys) and 0 not in keys


def test_what_hangs_again_and_again_ends_the_run_with_its_name():
    samplers = Here(Sampler, (Nothing(), Counting(), 1), random.Random(0), {"hangs": 1.0})
    judges = Here(Judge, ([SampleIsScore()],), random.Random(0), {})
    samplers.armed = False
    notes = []
    pipeline = wired(samplers, judges, k=0, patience=0.05, note=notes.append)
    samplers.armed = True
    spawn = samplers.spawn
    # Members come up well and hang in their first call.
    samplers.spawn = lambda: {**spawn(), "state": "new"}
    execute = samplers._execute

    def start_well(reference):
        handle, method, _ = samplers.calls[reference]
        handle["state"] = "well" if handle["state"] == "new" and method != "start" else handle["state"]
        execute(reference)

    samplers._execute = start_well
    try:
        with pytest.raises(ValueError, match="3 workers did not return from hanging about"):
            drive(pipeline, 1, k=0)
    finally:
        closed(pipeline)
    assert any("did not return for" in note and "hanging about" in note for note in notes)


def test_a_reward_that_never_returns_costs_its_group_and_no_more():
    samplers = Here(Sampler, (Nothing(), Counting(), 1), random.Random(0), {})
    judges = Here(Judge, ([SampleIsScore()],), random.Random(0), {})
    pipeline = wired(samplers, judges, k=1, patience=0.05)
    execute = judges._execute

    def never_the_third(reference):
        handle, method, arguments = judges.calls[reference]
        if method == "score" and arguments[0].index == 2:
            handle["state"] = "hung"
        execute(reference)

    judges._execute = never_the_third
    try:
        account = drive(pipeline, 10, k=1)
    finally:
        closed(pipeline)
    assert pipeline.drops == {"reward_hung": 1} and account["consumed"] == 20


def test_what_a_member_raises_is_raised_where_the_run_is():
    class Broken(SampleIsScore):
        def __call__(self, group):
            raise ValueError("the answer key is gone")

    samplers = Here(Sampler, (Nothing(), Counting(), 1), random.Random(0), {})
    judges = Here(Judge, ([Broken()],), random.Random(0), {})
    pipeline = wired(samplers, judges, k=0)
    try:
        with pytest.raises(ValueError, match="the answer key is gone"):
            drive(pipeline, 1, k=0)
        assert "scoring" in [one["state"] for one in pipeline.state_dict()["outstanding"].values()], (
            "the group that broke it is kept for a run that resumes"
        )
    finally:
        closed(pipeline)


def test_weights_travel_as_they_are():
    state = {
        "a": torch.randn(3, 4),
        "b": torch.randn(5).to(torch.bfloat16),
        "c": torch.tensor(7),
        "d": torch.ones(2, 3).T,
    }
    for name, tensor in unpacked(packed(state)).items():
        assert torch.equal(tensor, state[name]) and tensor.dtype == state[name].dtype
