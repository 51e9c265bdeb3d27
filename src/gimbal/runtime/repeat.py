"""Replay a run of many processes in this one, from its schedule: the same batches reach the learner, bit for bit."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from gimbal.dataflow.replay.swarm import Swarm
from gimbal.engines.base import AbstractEngine, Finished, Request
from gimbal.engines.precision import Form
from gimbal.engines.receipts import Reading, Receipt
from gimbal.records import Drop, Group, Rollout
from gimbal.report.files import SCHEDULE, JsonLines
from gimbal.rewards.base import AbstractReward
from gimbal.runtime import device
from gimbal.runtime.base import AbstractRuntimeSpec, AbstractScorer, AtOnce, Host, Scored, Wanted
from gimbal.runtime.ledger import Key
from gimbal.runtime.members import Packed, Sampler, packed
from gimbal.runtime.ray import Ray
from gimbal.runtime.run import AbstractRun
from gimbal.runtime.schedule import Event


class Diverged(ValueError):
    """The replay differs from the original run."""


@dataclass(frozen=True, kw_only=True)
class Replay(AbstractRuntimeSpec):
    """Follows the recorded schedule of the run in directory ``run``, in this process. Each of its workers had ``threads`` threads.

    Equal bit for bit on the same machine with the same versions of everything, if rewards and tools are deterministic.
    """

    run: str
    threads: int = 1

    def open(self, wanted: Wanted) -> Host:
        path = Path(self.run) / SCHEDULE
        if not path.is_file():
            raise ValueError(
                f"{self.run} has no {SCHEDULE}: a run in one process needs none; repeat it with gimbal train --from"
            )
        tape = Tape([event for row in _whole(path) for event in row["events"]])

        def member() -> Sampler:
            return Sampler(wanted.policy, wanted.engine, self.threads)

        engine = ReplayEngine(tape, member, wanted.threads)
        return Host(engine=engine, scorer=ReplayScorer(tape, wanted.opened), schedule=list)


class Tape:
    """The events, and how far they have been followed. ``member`` is called with those that are not the pipeline's own."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = deque(events)
        self.idle = 0  # times the pipeline has asked in vain since its last event
        self.resumed = False  # and the version at which it was is published once more
        self.member: Callable[[Event], None] = lambda event: None

    def next(self) -> Event:
        """The pipeline's next event, after everything before it has been followed."""
        while self.events:
            kind = self.events[0][0]
            # Questions in vain are counted, not listed: a run that waits asks thousands of times.
            if kind == "n" and self.idle == self.events[0][1]:
                self.events.popleft()
                self.idle = 0
                continue
            # A resumed run published the version of its checkpoint once more; here nothing was interrupted.
            again = kind == "v" and self.resumed
            if kind in ("t", "s", "v", "c", "n") and not again:
                break
            event = self.events.popleft()
            if not again:
                self.member(event)
            # "u" is a resume: its members begin empty, and what they held was drawn again.
            self.resumed = kind == "u" or (self.resumed and not again)
        if not self.events:
            raise Diverged("the schedule ends here: the run was stopped at this point, or the replay differs from it")
        return self.events[0]

    def expect(self, kind: str, what: Any) -> None:
        """The pipeline does something; this is where it did so."""
        event = self.next()
        # At the first difference, not at the first wrong batch: by then the cause is thousands of events back.
        if (event[0], event[2]) != (kind, what):
            raise Diverged(f"the schedule has {event} where {kind!r} {what} is done")
        self.events.popleft()
        self.idle = 0

    def ask(self, kind: str) -> Event | None:
        """What the pipeline was answered when it asked at this point, None for nothing."""
        event = self.next()
        if self.idle < event[1]:
            self.idle += 1
            return None
        if event[0] != kind:  # "n" is passed once its count is reached
            raise Diverged(f"the schedule has {event} where {kind!r} is asked for")
        self.idle = 0
        return self.events.popleft()


class ReplayEngine(AbstractEngine):
    """The members of the pool, here, each doing exactly what it did."""

    def __init__(self, tape: Tape, member: Callable[[], Sampler], threads: int) -> None:
        self.tape, self.member, self.learner_threads = tape, member, threads
        tape.member = self._follow
        self.members: dict[int, Sampler] = {}
        self.calls: dict[int, deque[Event]] = {}  # sent to a member and not yet executed, in order
        self.requests: dict[Key, Request] = {}  # in flight
        self.finished: dict[Key, Finished] = {}  # by some member, and not yet taken
        self.weights: dict[int, Packed] = {}  # of versions that a member may still have to load
        self.receipts: list[Receipt] = []
        self._spare = member()  # speaks for all of them: the newest weights
        self._version = -1

    @property
    def version(self) -> int:
        return self._version

    @property
    def tolerance(self) -> float:
        return self._spare.engine.tolerance

    @property
    def in_flight(self) -> int:
        return len(self.requests)

    def submit(self, request: Request) -> None:
        self.requests[request.key] = request

    def step(self) -> list[Finished]:
        event = self.tape.ask("t")
        if event is None:
            return []
        keys = [(group, sample) for group, sample in event[2]]
        if missing := [key for key in keys if key not in self.finished or key not in self.requests]:
            raise Diverged(f"rollouts {missing} had come out at this point, and have not")
        for key in keys:
            del self.requests[key]
        return [self.finished.pop(key) for key in keys]

    def cancel(self, key: Key) -> Rollout | Drop | None:
        self.tape.expect("c", list(key))
        del self.requests[key]
        held = self.finished.pop(key, None)
        return held.cancelled if held else None

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self.tape.expect("v", version)
        waiting = [call[2] for calls in self.calls.values() for call in calls if call[0] == "l"]
        self.weights = {v: weights for v, weights in self.weights.items() if v in waiting}
        self.weights[version] = packed({name: tensor.detach().clone() for name, tensor in state.items()})
        self._version = version
        self._spare.load(version, self.weights[version])

    @property
    def form(self) -> Form | None:
        return self._spare.engine.form

    def reading(self) -> Reading | None:
        return self._spare.engine.reading()

    def heard(self, *, wait: bool) -> list[Receipt]:
        receipts, self.receipts = self.receipts, []
        return receipts

    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        return self._spare.engine.score(rollout)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        raise ValueError("a replay cannot be resumed; start it again")

    def _follow(self, event: Event) -> None:
        kind, member = event[0], event[1] if len(event) > 1 else -1
        if kind == "j":
            self.members[member], self.calls[member] = self.member(), deque()
        elif kind == "d":
            del self.members[member], self.calls[member]
        elif kind == "u":
            self.members.clear()
            self.calls.clear()
        elif kind == "l":
            self.calls[member].append(event)
        elif kind == "a":
            new = [(0, self.requests[group, sample]) for group, sample in event[2]]
            self.calls[member].append([kind, member, new, [(group, sample) for group, sample in event[3]]])
        else:
            assert kind == "r", event
            self._answer(member, event[2])
            # The member worked in its own number of threads, by which a sum may round otherwise; the learner goes on in its own.
            device.prepare(self.learner_threads)

    def _answer(self, member: int, steps: int) -> None:
        """Execute a member's calls up to the advance that was answered."""
        sampler, calls = self.members[member], self.calls[member]
        while calls[0][0] == "l":
            version = calls.popleft()[2]
            word = sampler.load(version, self.weights[version])
            if word.receipt is not None:
                self.receipts.append(replace(word.receipt, who=f"worker {member}"))
        _, _, new, gone = calls.popleft()
        # By steps and not by seconds: how far a worker came in its time is what chance decided.
        done, _, taken = sampler.advance(new, gone, math.inf, float(steps))
        if taken != steps:
            raise Diverged(f"worker {member} took {steps} steps of its engine here, and now {taken}")
        self.finished |= {item.key: item for _, item in done}


class ReplayScorer(AbstractScorer):
    """Verdicts in the order in which they came."""

    def __init__(self, tape: Tape, rewards: Sequence[AbstractReward]) -> None:
        self.tape, self.rewards = tape, AtOnce(rewards)
        self.groups: dict[int, Group] = {}

    @property
    def pending(self) -> int:
        return len(self.groups)

    def submit(self, group: Group) -> None:
        self.groups[group.index] = group

    def ready(self, *, wait: bool) -> Scored | None:
        event = self.tape.ask("s")
        if event is None:
            return None
        _, _, index, reason = event
        group = self.groups.pop(index)
        # A scorer that died is not made to die again; what became of the group is what matters.
        if reason:
            return Scored(index=index, outcome=Drop(reason))
        self.rewards.submit(group)
        return self.rewards.ready(wait=False)


def replayed(run: AbstractRun, directory: Path) -> AbstractRun:
    """The run that does the one in ``directory`` again."""
    if not isinstance(run.runtime, Ray):
        raise ValueError(
            f"{directory} is a run of {type(run.runtime).__name__}: gimbal train --from {directory} is its replay"
        )
    store = run.store
    if isinstance(store, Swarm):  # the rounds in its directory are the original's
        store = replace(store, name=f"{store.name}-replay")
    return replace(run, store=store, runtime=Replay(run=str(directory.resolve()), threads=run.runtime.threads))


def _whole(schedule: Path) -> list[dict[str, Any]]:
    """Its lines; a ValueError where one is lost or damaged, for what follows it cannot be done again."""
    rows = JsonLines(schedule).read()
    at = next(
        (at for at, row in enumerate(rows, 1) if row.get("step") != at or not {"batch", "events"} <= row.keys()), 0
    )
    if at:
        raise ValueError(f"{schedule} has no complete line for step {at}, so this run cannot be replayed")
    return rows


def compared(original: Path, again: Path) -> str:
    """One sentence that the learner received the same batches. Raises Diverged if it did not."""
    ours, theirs = ({row["step"]: row["batch"] for row in _whole(path / SCHEDULE)} for path in (again, original))
    for step in sorted(ours):
        if ours[step] != theirs.get(step):
            raise Diverged(
                f"the batch of step {step} differs from that of {original}: the machine, versions or threads differ, or a reward "
                "or a tool is not deterministic"
            )
    return f"all {len(ours)} batches equal those of {original}, bit for bit"
