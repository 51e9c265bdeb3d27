"""An attempt in progress: its generators, what they wait for, and the journal from which they are restored."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gimbal.environments.base import Moment
from gimbal.ops.deadline import Call
from gimbal.records import Rollout
from gimbal.workflows.acting import Seat
from gimbal.workflows.base import Ask, Attempt, Draw, Fork
from gimbal.workflows.rows import Grown

Key = tuple[int, int]


@dataclass(kw_only=True, eq=False)
class Strand:
    """A running generator; it waits for the answers to its last calls."""

    steps: Generator[Any, Any, Any]
    above: tuple[Strand, int] | None  # who waits for what it returns, and at which place of its list
    several: bool = False
    answers: list[Any] = field(default_factory=list)
    missing: int = 0


@dataclass(kw_only=True, eq=False)
class OpenCall:
    """A call without an answer yet."""

    strand: Strand
    place: int
    call: Any
    key: Key | None = None  # under which an engine draws for it
    due: int | None = 0  # if it is an Act: the step of the engine at which its answer joins; None: when it comes
    entry: int = 0  # likewise: its place in the history of its environment
    under_way: Call | None = None  # likewise


class Flow:
    """An attempt in progress. ``journal`` holds (number of a call, its answer), in order; for a row that continued another, only what
    is new."""

    def __init__(self, attempt: Attempt, steps: Generator[Any, Any, Any]) -> None:
        self.attempt = attempt
        self.journal: list[tuple[int, Any]] = []
        self.asked: dict[int, OpenCall] = {}
        self.count = 0  # of calls
        self.idle = 0  # how often a generator went on since the last new decision
        self.drawn = 0  # decisions of the policy, as an Episode counts them
        self.rows: dict[int, int] = {}  # begun so far, by sample
        self.roles: dict[Key, str] = {}  # that drew each row, by (sample, row)
        self.seats: dict[int, Seat] = {}
        self.gone: set[int] = set()  # samples that were cancelled
        self.last: Rollout | None = None  # the row that was heard of last
        self.outcome: Any = None
        self.over = False
        self.newest = Strand(steps=steps, above=None)  # that went on last
        self.ready: deque[tuple[Strand, Any]] = deque([(self.newest, None)])
        self.at_once: deque[tuple[int, Any]] = deque()  # answers that were there as soon as they were asked for

    def row(self, sample: int) -> int:
        """The number of one more row of this sample."""
        self.rows[sample] = self.rows.get(sample, -1) + 1
        return self.rows[sample]

    def send(self) -> list[int]:
        """Send the first ready generator its answer; returns the numbers of the calls it makes."""
        strand, answer = self.ready.popleft()
        self.idle += 1
        self.newest = strand
        try:
            wish = strand.steps.send(answer)
        except StopIteration as end:
            self._return(strand, end.value)
            return []
        strand.several = isinstance(wish, list | tuple)
        calls = list(wish) if isinstance(wish, list | tuple) else [wish]
        strand.answers, strand.missing = [None] * len(calls), len(calls)
        if not calls:
            self.ready.append((strand, []))
        made: list[int] = []
        for place, call in enumerate(calls):
            if isinstance(call, Generator):
                self.ready.append((Strand(steps=call, above=(strand, place)), None))
            else:
                made.append(self.count)
                self.asked[self.count] = OpenCall(strand=strand, place=place, call=call)
                self.count += 1
        return made

    def answer(self, number: int, answer: Any) -> None:
        """Add it to the journal and pass it on."""
        asked = self.asked.pop(number)
        if isinstance(answer, Rollout):
            self.last = answer
            if isinstance(asked.call, Draw | Fork):
                self.roles[answer.sample, answer.row] = answer.role
        if new := new_in(asked.call, answer):
            self.idle = 0
            self.drawn += 0 if isinstance(asked.call, Ask) else new
        self.journal.append((number, shortened(asked.call, answer)))
        self._deliver(asked.strand, asked.place, answer)

    def _return(self, strand: Strand, value: Any) -> None:
        if strand.above is None:
            self.outcome, self.over = value, True
        else:
            self._deliver(*strand.above, value)

    def _deliver(self, strand: Strand, place: int, answer: Any) -> None:
        strand.answers[place] = answer
        strand.missing -= 1
        if not strand.missing:
            self.ready.append((strand, strand.answers if strand.several else strand.answers[0]))


def new_in(call: Any, answer: Any) -> int:
    """How many decisions were drawn for it, what it was told among them but not what it was forced to or given."""
    if not isinstance(answer, Rollout) or not isinstance(call, Draw | Fork | Ask):
        return 0
    if isinstance(call, Fork):
        return answer.length - call.at - len(call.forced)
    return answer.drawn if isinstance(call, Ask) or call.row is None else answer.length - call.row.length


def sample_of(flow: Flow, call: Any) -> int:
    """The sample that the call concerns."""
    if isinstance(call, Ask):
        return flow.attempt.sample
    if isinstance(call, Draw) and call.row is not None:
        return call.row.sample
    return flow.attempt.sample if call.sample is None else call.sample


def role_of(call: object) -> str:
    """Who acts in the row that it draws for training, "" where no role is named."""
    row = call.row if isinstance(call, Draw | Fork) else None
    return call.role if isinstance(call, Draw) and row is None else "" if row is None else row.role


def shortened(call: Any, answer: Any) -> Any:
    """An answer as stored in a journal."""
    if not isinstance(answer, Rollout) or not isinstance(call, Draw | Fork) or call.row is None:
        return answer
    return Grown.of(call.row, call.at if isinstance(call, Fork) else call.row.length, answer)


def lengthened(call: Any, answer: Any) -> Any:
    """The answer again, when the same call is made again."""
    return answer.row(call.row) if isinstance(answer, Grown) else answer


def saved(answer: Any) -> Any:
    """An answer as a checkpoint holds it: it reads tensors and our own records, and no other classes."""
    if isinstance(answer, Moment) and isinstance(answer.observation, np.ndarray):
        return replace(answer, observation=torch.from_numpy(answer.observation))
    return answer


def restored(answer: Any) -> Any:
    if isinstance(answer, Moment) and isinstance(answer.observation, Tensor):
        return replace(answer, observation=answer.observation.numpy())
    return answer
