"""What happened once happens again: the schedule of a run of many processes, followed in one."""

import json
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from faulty import Counting, Nothing, SampleIsScore, closed, drive, members, pipeline_over, wired

from gimbal.report.files import JsonLines
from gimbal.runtime import fleet
from gimbal.runtime.members import Sampler
from gimbal.runtime.repeat import Diverged, ReplayEngine, ReplayScorer, Tape, compared

FAULTS = {"dies before": 0.05, "dies after": 0.05, "hangs": 0.01}


def again(events, *, k, surplus="wait"):
    tape = Tape(json.loads(json.dumps(events)))
    engine = ReplayEngine(tape, lambda: Sampler(Nothing(), Counting(longest=20), 1), 1)
    return pipeline_over(engine, ReplayScorer(tape, [SampleIsScore()]), k=k, surplus=surplus)


def recorded(monkeypatch, *, k, surplus="wait", versions=25):
    """A run under faults, with workers that come and go: (its batches, its schedule)."""
    monkeypatch.setattr(fleet, "LOSSES_IN_A_ROW", 10**6)
    monkeypatch.setattr("gimbal.runtime.pool.TRIES", 10**6)
    monkeypatch.setattr("gimbal.runtime.pool.ADVANCE_SECONDS", 0.0)  # a step at a time
    pipeline = wired(*members(FAULTS, k, longest=20), k=k, patience=0.01, surplus=surplus)
    engine, draw = pipeline.parts.engine, random.Random(0)

    def between(version):
        if draw.random() < 0.2:
            engine.add()
        with engine.fleet.changed:  # nobody dies between the choice and the removal
            if draw.random() < 0.2 and len(engine.workers) > 1:
                engine.remove(draw.choice(engine.workers))

    try:
        account = drive(pipeline, versions, k=k, between=between)
    finally:
        closed(pipeline)
    assert account["repeated"] > 0
    return account["batches"], engine.schedule.take()


@pytest.mark.slow
@pytest.mark.parametrize(("k", "surplus"), [(0, "wait"), (2, "wait"), (2, "recycle")])
def test_the_same_batches_come_again(monkeypatch, k, surplus):
    batches, events = recorded(monkeypatch, k=k, surplus=surplus)
    assert drive(again(events, k=k, surplus=surplus), 25, k=k) == batches
    drawn = [
        (at, v) for at, batch in enumerate(batches) for _, rollouts in batch for versions in rollouts for v in versions
    ]
    assert any(v < at for at, v in drawn) == (k > 0)


@pytest.mark.slow
def test_another_schedule_gives_other_batches(monkeypatch):
    """The test above could not fail if the schedule made no difference."""
    first, _ = recorded(monkeypatch, k=2)
    second, _ = recorded(monkeypatch, k=2)
    assert first != second


def test_what_differs_is_refused(monkeypatch):
    _, events = recorded(monkeypatch, k=2, versions=10)
    first = next(place for place, event in enumerate(events) if event[0] == "t")
    events = [event for event in events[:first] if event[0] != "r"] + events[first:]
    with pytest.raises(Diverged):
        drive(again(events, k=2), 10, k=2)


def test_a_schedule_ends_where_the_run_was_stopped(monkeypatch):
    _, events = recorded(monkeypatch, k=1, versions=10)
    with pytest.raises(Diverged, match="ends here"):
        drive(again(events, k=1), 12, k=1)


def test_a_schedule_that_lost_a_line_is_refused(tmp_path):
    lines = JsonLines(tmp_path / "schedule.jsonl")
    for step in (1, 2, 3):
        lines.append({"step": step, "batch": "x", "events": []})
    whole = lines.path.read_bytes().splitlines(keepends=True)
    assert compared(tmp_path, tmp_path).startswith("all 3 batches")
    for spoilt in ([whole[0], whole[2]], [whole[0], b"torn\n", whole[2]], [whole[0], b'{"step": 2}\n', whole[2]]):
        lines.path.write_bytes(b"".join(spoilt))
        with pytest.raises(ValueError, match="has no complete line for step 2"):
            compared(tmp_path, tmp_path)
