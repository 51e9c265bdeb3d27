"""Groups of which more is drawn once they are scored: alone, or when their round is there."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from uneven import Schedule

from gimbal.dataflow.base import AbstractBudget, Plan
from gimbal.dataflow.staleness import Pace


class Twice(AbstractBudget):
    """Two rollouts, and two more where none of them was short; what it was asked about stays in ``asked``."""

    def __init__(self):
        self.asked, self.done = [], []

    def plan(self, tasks):
        return [Plan(rollouts=2, max_length=64) for _ in tasks]

    def more(self, begun):
        self.asked.append([(b.group.index, len(b.group.episodes), b.asked) for b in begun])
        return [2 * (b.asked < 6 and not any(e.earned for e in b.group.episodes)) for b in begun]

    def observe(self, group):
        self.done.append(group.index)


class InRounds(Twice):
    rounds = True


@pytest.mark.parametrize("budget", [Twice, InRounds])
@pytest.mark.parametrize(("k", "share"), [(0, 0.0), (2, 0.0), (2, 0.4)])
def test_groups_grow_and_none_is_lost_or_too_old(budget, k, share):
    live = budget()
    schedule = Schedule(Pace().start(k, 4), steps=12, seed=3, budget=live, share=share, slots=20, held_up=0.2)
    pipeline = schedule.pipeline
    assert schedule.oldest <= k
    assert len(schedule.trained) == len(set(schedule.trained)) == 48
    there = set(pipeline.outstanding)
    assert sorted([*schedule.trained, *there]) == [
        index for index in range(pipeline.dispatched) if index not in dropped(live, schedule, there)
    ]
    assert len(live.done) == len(set(live.done)), "a group is observed once, when it is done"
    sizes = {index: asked for asked_of in live.asked for index, _, asked in asked_of}
    assert set(sizes.values()) >= {2, 4}, "some grew and some did not"
    assert all(count == asked for asked_of in live.asked for _, count, asked in asked_of)


def dropped(live, schedule, there):
    return set(live.done) - set(schedule.trained) - there


def test_a_round_is_asked_about_together_and_waits_for_its_slowest():
    live = InRounds()
    Schedule(Pace().start(0, 4), steps=3, seed=0, budget=live)
    assert all(len(asked) == 4 for asked in live.asked), live.asked
    firsts = [asked[0][0] for asked in live.asked if all(count == 2 for _, count, _ in asked)]
    assert firsts == [0, 4, 8]


def test_alone_each_is_asked_when_it_is_scored():
    live = Twice()
    Schedule(Pace().start(0, 4), steps=3, seed=0, budget=live)
    assert all(len(asked) == 1 for asked in live.asked)


def test_surplus_that_is_taken_back_begins_anew():
    live = Twice()
    schedule = Schedule(
        Pace().start(1, 4),
        steps=12,
        seed=1,
        budget=live,
        oversampling=2.0,
        surplus="recycle",
        slots=6,
    )
    pipeline = schedule.pipeline
    assert pipeline.drops["recycled"] > 0 and schedule.oldest <= 1
    engine = pipeline.parts.engine
    unfinished = sum(len(versions) for _, _, versions in engine.live)
    assert pipeline.generated["decisions"] == engine.drawn - unfinished, "what is thrown away was generated"


@pytest.mark.parametrize("said", [3, [1, 2], [-1]])
def test_what_is_no_answer_is_said(said):
    live = Twice()
    live.more = lambda begun: said
    with pytest.raises(ValueError, match=r"Twice\.more .*a list of 1 numbers of rollouts"):
        Schedule(Pace().start(0, 4), steps=1, seed=0, budget=live)


def test_what_tokens_buy_is_counted():
    """All that is trained on, and each group whose scores differ, dropped ones too."""
    schedule = Schedule(Pace().start(1, 4), steps=6, seed=2, budget=Twice(), share=0.3)
    pipeline, found = schedule.pipeline, schedule.pipeline.metrics()
    assert found["signal/trained"] == sum(len(ages) for ages in schedule.ages) > 0
    assert 0 < found["signal/groups"] < len(pipeline.parts.budget.done)
    assert pipeline.drops["dice"] > 0
    share = found["signal/groups"] / pipeline.generated["decisions"]
    assert found["signal/groups_per_1000"] == pytest.approx(1000 * share)
