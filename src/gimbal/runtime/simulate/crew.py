"""Several roles with weights of their own on one virtual clock: how their steps overlap.

    synchronous    all episodes of a step end, then every role trains on its rows, then all begin the next step
    micro-batch    a role sums up its gradient over micro-batches of its rows while others of the step are still drawn, and begins the
                   next step once its own weights have moved (FlexMARL, arXiv:2602.09578)
    autonomous     no steps: each role trains whenever it has a batch, and up to k versions of episodes are drawn ahead (AstraFlow,
                   arXiv:2605.15565)

Under the first two every decision trains the version that drew it, and the sum over micro-batches is the gradient of the batch. An
episode is a chain of turns, in each of which one role makes some calls at once; all its rows go into the store when it has ended.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gimbal.engines.base import Request
from gimbal.policies.token import Sampling
from gimbal.records import MOST_LENGTH, Task
from gimbal.runtime.simulate.timing import AbstractLengths, LogNormal, Speeds, Waits
from gimbal.runtime.simulate.virtual import Durations, VirtualEngine

WHOLE = Sampling(max_length=MOST_LENGTH)  # lengths have their own limit
Order = Literal["synchronous", "micro-batch", "autonomous"]


@dataclass(frozen=True, kw_only=True)
class RolePlan:
    """A role: the calls that it makes at once in each of its turns, its samplers, and the units of training speed that it has."""

    speeds: Speeds = Speeds()
    lengths: AbstractLengths = LogNormal()
    calls: int = 1
    samplers: int = 1
    slots: int = 128
    prompt: int = 256  # tokens
    trainers: int = 1

    def __post_init__(self) -> None:
        for name in ("calls", "samplers", "slots", "trainers"):
            if vars(self)[name] < 1:
                raise ValueError(f"RolePlan.{name} is {vars(self)[name]}; it must be at least 1")
        if self.prompt < 0:
            raise ValueError(f"RolePlan.prompt is {self.prompt}; it counts tokens, 0 or above")


@dataclass(frozen=True, kw_only=True)
class CrewSetup:
    """Who acts in an episode, in this order, and what a step is."""

    roles: Mapping[str, RolePlan]
    turns: tuple[str, ...]
    episodes: int = 16  # of a step
    micro_batch: int = 4  # episodes whose rows are one micro-batch
    max_staleness: int = 1  # k of autonomous
    warmup: int = 2  # first steps, which the figures leave out
    steps: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.turns or set(self.turns) != set(self.roles):
            raise ValueError(
                f"CrewSetup has turns of {', '.join(self.turns) or 'nobody'}, and plans of {', '.join(self.roles) or 'nobody'}; each "
                "role must have a turn, and a plan"
            )
        for name in ("episodes", "micro_batch", "steps"):
            if vars(self)[name] < 1:
                raise ValueError(f"CrewSetup.{name} is {vars(self)[name]}; it must be at least 1")
        for name in ("max_staleness", "warmup"):
            if vars(self)[name] < 0:
                raise ValueError(f"CrewSetup.{name} is {vars(self)[name]}; it must be 0 or above")


@dataclass(frozen=True, kw_only=True)
class CrewForecast:
    """Over the measured steps: seconds of each, shares of device time by role, and how old the decisions trained on were."""

    step_s: float
    sampler_idle: Mapping[str, float]
    trainer_idle: Mapping[str, float]
    sampling: Mapping[str, float]  # device seconds of a step, without loading
    age_mean: float
    age_max: int


@dataclass
class _Member:
    """A role as it stands."""

    name: str
    plan: RolePlan
    engine: VirtualEngine
    version: int = 0
    waiting: deque[int] = field(default_factory=deque)  # episodes whose turn it is, and which wait for its weights
    stored: deque[list[Durations]] = field(default_factory=deque)  # rows of each episode, in the order of their ends
    summed: int = 0  # episodes of this version's batch of which the gradient is there
    until: float | None = None  # end of what it trains on
    taken: int = 0  # episodes in that
    training: float = 0.0  # seconds so far
    ages: Counter[int] = field(default_factory=Counter)

    def so_far(self) -> dict[str, float]:
        """Device seconds of its samplers, and seconds of its learner."""
        usage = self.engine.usage()
        return {"busy": usage["busy"], "loading": usage["loading"], "training": self.training}


class _Crew:
    def __init__(self, plan: CrewSetup, order: Order) -> None:
        self.plan, self.order, self.now = plan, order, 0.0
        self.members = {name: _Member(name, role, _engine(role)) for name, role in plan.roles.items()}
        for member in self.members.values():
            member.engine.load(0, {})
        self.admitted = 0
        self.open: dict[int, tuple[int, int, dict[str, list[Durations]]]] = {}  # its turn, calls that are out, its rows

    @property
    def version(self) -> int:
        return min(member.version for member in self.members.values())

    def until(self, version: int) -> None:
        """Let time pass until all roles have this version."""
        while self.version < version:
            self._admit()
            for member in self.members.values():
                self._ask(member)
                self._train(member)
            ends = [member.until for member in self.members.values() if member.until is not None]
            time = min([*ends, *(member.engine.due() for member in self.members.values())])
            assert time < math.inf, "nobody does anything, and nobody waits for anything"
            self._pass(time)

    def _admit(self) -> None:
        size = self.plan.episodes
        if self.order == "autonomous":
            most = (self.version + 1 + self.plan.max_staleness) * size
        else:
            most = self.admitted if self.open else self.admitted + size
        for episode in range(self.admitted, most):
            self.open[episode] = (0, 0, {name: [] for name in self.members})
            self.members[self.plan.turns[0]].waiting.append(episode)
        self.admitted = max(self.admitted, most)

    def _ask(self, member: _Member) -> None:
        """Begin the turns of this role for which it has the weights."""
        newest = {"synchronous": self.version, "micro-batch": member.version}.get(self.order, self.admitted)
        while member.waiting and member.waiting[0] // self.plan.episodes <= newest:
            episode = member.waiting.popleft()
            turn, _, rows = self.open[episode]
            self.open[episode] = (turn, member.plan.calls, rows)
            for call in range(member.plan.calls):
                group = episode * len(self.plan.turns) + turn
                member.engine.submit(
                    Request(group=group, task=Task(id=""), sample=call, sampling=WHOLE, seed=self.plan.seed)
                )

    def _pass(self, time: float) -> None:
        """To the next moment at which something ends."""
        for member in self.members.values():
            member.engine.pass_time(time - self.now)
        self.now = time
        for member in self.members.values():
            for finished in member.engine.arrived():
                assert isinstance(finished.rollout.decisions, Durations)
                self._answered(member, finished.key[0] // len(self.plan.turns), finished.rollout.decisions)
            if member.until is not None and member.until <= time:
                self._trained(member)

    def _answered(self, member: _Member, episode: int, row: Durations) -> None:
        turn, out, rows = self.open[episode]
        rows[member.name].append(row)
        self.open[episode] = (turn, out - 1, rows)
        if out > 1:
            return
        if turn + 1 < len(self.plan.turns):
            self.open[episode] = (turn + 1, 0, rows)
            self.members[self.plan.turns[turn + 1]].waiting.append(episode)
            return
        del self.open[episode]
        for name, own in rows.items():
            self.members[name].stored.append(own)

    def _train(self, member: _Member) -> None:
        """Begin what this role may train on now."""
        if member.until is not None:
            return
        left = self.plan.episodes - member.summed
        size = min(left, self.plan.micro_batch) if self.order == "micro-batch" else left
        if len(member.stored) < size:
            return
        rows = [row for _ in range(size) for row in member.stored.popleft()]
        for spans in (spans for row in rows for spans in row.rows):
            for version, count in spans:
                member.ages[member.version - version] += count
        speeds, turns = member.plan.speeds, self.plan.turns.count(member.name)
        decisions = sum(int(row.cost_N.sum()) for row in rows)
        seconds = speeds.train(decisions, size * turns * member.plan.prompt, member.plan.trainers)
        # An optimiser's step is once a batch.
        seconds += speeds.sync_s if size == left else -speeds.train_step_s
        member.until, member.taken = self.now + seconds, size
        member.training += seconds

    def _trained(self, member: _Member) -> None:
        member.until, member.summed = None, member.summed + member.taken
        if member.summed == self.plan.episodes:
            member.summed, member.version = 0, member.version + 1
            member.engine.load(member.version, {})


def _engine(role: RolePlan) -> VirtualEngine:
    return VirtualEngine(
        role.speeds,
        role.lengths,
        Waits(),
        devices=role.samplers,
        slots=role.slots,
        generations=role.calls,
        prompt=role.prompt,
        loading="interrupt",
        recompute=False,
    )


def simulate_crew(plan: CrewSetup, order: Order) -> CrewForecast:
    """The forecast of one order; the same for the same arguments.

    - one role: micro-batch with ``micro_batch`` = ``episodes`` is synchronous.
    - autonomous with ``max_staleness`` = 0 is synchronous.

    Published and left out: trainers that are bound to a role only while it trains (here each has its own), samplers that move between
    roles during a run (``balanced`` splits them before it), and the drop of rows that have become too old (the admission bounds their
    number; an old row is trained on).
    """
    crew = _Crew(plan, order)
    crew.until(plan.warmup)
    began, first = crew.now, {m.name: m.so_far() for m in crew.members.values()}
    aged = sum((m.ages for m in crew.members.values()), Counter())
    crew.until(plan.warmup + plan.steps)
    seconds, members = crew.now - began, list(crew.members.values())
    spent = {m.name: {key: value - first[m.name][key] for key, value in m.so_far().items()} for m in members}
    ages = sum((m.ages for m in members), Counter()) - aged
    return CrewForecast(
        step_s=seconds / plan.steps,
        sampler_idle={
            m.name: max(0.0, 1 - (spent[m.name]["busy"] + spent[m.name]["loading"]) / (seconds * m.plan.samplers))
            for m in members
        },
        trainer_idle={m.name: max(0.0, 1 - spent[m.name]["training"] / seconds) for m in members},
        sampling={m.name: spent[m.name]["busy"] / plan.steps for m in members},
        age_mean=sum(age * count for age, count in ages.items()) / ages.total(),
        age_max=max(ages),
    )


def balanced(plan: CrewSetup, order: Order) -> CrewSetup:
    """The same samplers, split by what each role needs of them: the largest remainders of total x load / sum of loads, at least 1 each.

    The load is the device seconds of a step as the split at hand has them.
    """
    loads = simulate_crew(plan, order).sampling
    total = sum(role.samplers for role in plan.roles.values()) - len(loads)
    shares = {name: total * load / max(sum(loads.values()), 1e-12) for name, load in loads.items()}
    counts = {name: 1 + int(share) for name, share in shares.items()}
    rest = sorted(shares, key=lambda name: int(shares[name]) - shares[name])
    for name in rest[: total + len(loads) - sum(counts.values())]:
        counts[name] += 1
    return replace(plan, roles={name: replace(role, samplers=counts[name]) for name, role in plan.roles.items()})
