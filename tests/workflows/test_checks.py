"""What a user's workflow asks for or returns that cannot be: one sentence with its line, or a counted drop; never a fault of ours."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest
from dice import POLICY, Dice, ask

from gimbal.config.own import OwnError
from gimbal.engines.base import CONTINUE, DRAW, FORK, drained
from gimbal.environments.tools import AbstractTool
from gimbal.records import Drop, Episode
from gimbal.workflows.base import AbstractWorkflow, Act, Ask, Draw, Fork, Stop, Write
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven


@dataclass(frozen=True, kw_only=True)
class Mine(AbstractWorkflow):
    """Draws a few decisions, and does with them what ``then`` says."""

    then: Any = None

    @property
    def requires(self):
        return frozenset({DRAW, CONTINUE, FORK})

    def __call__(self, attempt):
        row = yield attempt.begin(most=8)
        return (yield from self.then(row))


def outcome(then, workflow=None, samples=1, asks=False, **sampling):
    live = Driven(engine=Dice(asks=asks), workflow=workflow or Mine(then=then)).start(POLICY)
    live.load(0, {})
    ask(live, samples=samples, **sampling)
    return drained(live)[0, 0].outcome


def yields(make):
    def then(row):
        row = yield make(row)
        return Episode.of(row)

    return then


def bad(call, **values):
    """With values that the checked types of these tests would refuse as it is made; a user's run has no such check."""
    for name, value in values.items():
        object.__setattr__(call, name, value)
    return call


CALLS = {
    "Fork with at=1000000; it must be the number of decisions to keep": lambda row: Fork(row=row, at=10**6),
    "Fork with at=-1;": lambda row: Fork(row=row, at=-1),
    "Fork with row=None; it must be a row": lambda row: bad(Fork(row=row, at=1), row=None),
    "Draw with the token 1000000000 in told; this model knows 0 to": lambda row: Draw(row=row, told=[10**9]),
    "Draw with told=5; it must be text, a list of token ids": lambda row: bad(Draw(row=row), told=5),
    "Draw with told=half of a surrogate pair": lambda row: Draw(row=row, told="\ud800"),
    "Draw with told and no row": lambda row: Draw(told="1"),
    "Draw with most=-1; .* 1 or above": lambda row: Draw(row=row, most=-1),
    "Draw with stop='ab'; it must be a tuple": lambda row: bad(Draw(row=row), stop="ab"),
    "Draw with sample=9; the samples of this attempt are 0": lambda row: Draw(sample=9),
    "Draw with task='x'; it must be a Task": lambda row: bad(Draw(), task="x"),
    "Draw with a row that is already being sampled": lambda row: [Draw(row=row), Draw(row=row)],
    "Write with a row that is not sampled": lambda row: Write(text="hello"),
    "Act with environment=None": lambda row: bad(Act(environment=Raises(error=ValueError)), environment=None),
    "Stop with sample='a'": lambda row: bad(Stop(sample=0), sample="a"),
    "Ask with role='judge'; the roles of this workflow are none": lambda row: Ask(role="judge", task=row.task),
}


@pytest.mark.parametrize("sentence", CALLS)
def test_a_call_that_cannot_be(sentence):
    with pytest.raises(OwnError, match=rf"Mine \(test_checks.py, line \d+\) yielded {sentence}"):
        outcome(yields(CALLS[sentence]))


def returns(make):
    def then(row):
        return make(row)
        yield

    return then


def nan(row):
    return Episode.of(replace(row, behavior_S=row.behavior_S * float("nan")))


def continued(row):
    longer = yield Draw(row=row, most=1)
    return Episode(rows=(row, longer))


EPISODES = {
    "the same decisions in two rows": returns(lambda row: Episode(rows=(row, row))),
    "the same decisions in two": continued,
    "a row that differs from what was sampled: .*not finite": returns(nan),
    "a row of sample 1 for sample 0": returns(lambda row: Episode.of(replace(row, sample=1))),
}


@pytest.mark.parametrize("sentence", EPISODES)
def test_an_episode_that_cannot_be(sentence):
    with pytest.raises(OwnError, match=f"Mine returned an episode with {sentence}"):
        outcome(EPISODES[sentence])


def test_an_episode_without_decisions_is_a_drop():
    drop = outcome(returns(lambda row: Episode.of(replace(row, mask_S=row.mask_S & False))))
    assert isinstance(drop, Drop) and drop.reason == "undrawn" and drop.drawn and "mask_S" in drop.said


def nothing(row):
    while True:
        yield []


def no_room(row):
    while True:
        row = yield Draw(row=row, told="", most=1)


@pytest.mark.parametrize("then", [nothing, no_room])
def test_an_attempt_without_end_is_a_drop(then):
    drop = outcome(then, samples=2)
    assert isinstance(drop, Drop) and drop.reason == "endless" and drop.drawn
    assert "times in a row without a new decision" in drop.said and "(test_checks.py, line " in drop.said


def test_what_cannot_fit_is_not_encoded(monkeypatch):
    def encode(text, **given):
        assert len(text) < 10**6, "all of it was encoded"
        return whole(text, **given)

    whole = POLICY.tokenizer.encode
    monkeypatch.setattr(POLICY.tokenizer, "encode", encode)
    assert outcome(yields(lambda row: Draw(row=row, told="1" * 10**7))).stop == "length"


@dataclass(frozen=True, kw_only=True)
class Raises(AbstractTool):
    error: type[BaseException]

    @property
    def triggers(self):
        return ("=",)

    def __call__(self, task, text):
        raise self.error("half \ud800")


@pytest.mark.parametrize("error", [BaseException, asyncio.CancelledError, KeyboardInterrupt, StopIteration, SystemExit])
def test_whatever_a_tool_raises_ends_its_own_rollout(error):
    episode = outcome(None, Dialogue(tool=Raises(error=error)), asks=True)
    assert error.__name__ in episode.error and episode.error.encode(), episode


@dataclass(frozen=True, kw_only=True)
class Ended(AbstractWorkflow):
    """Stops a row in the step in which it ends by itself."""

    @property
    def whole(self):
        return True

    def __call__(self, attempt):
        rows, stopped = {}, []

        def first():
            rows[0] = yield Draw(sample=0, most=5)
            stopped.append((yield Stop(sample=1)))

        def second():
            rows[1] = yield Draw(sample=1, most=5)

        yield [first(), second()]
        return [Episode.of(row) for row in rows.values()]


def test_a_row_is_stopped_in_the_step_in_which_it_ends():
    assert outcome(None, Ended(), samples=2).length <= 5
