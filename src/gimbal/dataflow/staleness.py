"""Staleness rules: when a group may be dispatched, when the learner may step, and what happens to data that is too old.

The age of a decision is the learner's version when its gradient is taken minus the version of the weights that sampled it.
k = ``max_staleness`` versions, B = ``groups_per_step``. All rules dispatch only while fewer than (a + 1) B groups are outstanding
(dispatched, neither consumed nor dropped), where a = ``admission`` is k unless it is set. They differ in who pays for a slow rollout:

    Pace      the learner waits if its step would leave something too old; finished groups are consumed first
    Wait      the learner waits for the groups dispatched earliest, and consumes them in that order
    Withhold  the samplers wait: no new tasks until all dispatched ones are consumed
    DropStale no waiting; a group with a decision older than k is dropped
    MaskStale no waiting; decisions older than k get no gradient
    Reweight  no waiting, and everything is trained on: no bound

docs/staleness.md has the proofs. The first three train on everything, so they cannot select; the comparison of sampled and trained
rollouts (``report/selection.py``) shows the effect of the others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from gimbal.composition import ABSORBS_DISCREPANCY, BALANCES, AbstractPart, Advice, Composition, Refusal, Verdict
from gimbal.objectives.base import DISCREPANCY, AbstractCorrection, AbstractObjective
from gimbal.records import Group, TrainBatch


class AbstractStaleness(ABC):
    """A rule with k and B: the live half of an ``AbstractStalenessSpec``, without a state of its own."""

    def __init__(self, admission: int | None, max_staleness: int, groups_per_step: int) -> None:
        self.max_staleness, self.groups_per_step = max_staleness, groups_per_step
        ahead = max_staleness if admission is None else min(admission, max_staleness)
        self.capacity = (ahead + 1) * groups_per_step  # the most finished groups that may wait

    @abstractmethod
    def batch(self, stored: Sequence[int], outstanding: Mapping[int, int], version: int) -> list[int]:
        """What to train on now; [] to continue generating. ``stored``: indices of finished groups, ascending; ``outstanding``: these
        and those in flight, with the learner's version at their dispatch. An index is the order of dispatch."""

    def stale(self, group: Group, version: int) -> bool:
        """Whether a stored group is too old to train on."""
        return False

    def trained(self, batch: TrainBatch, version: int) -> TrainBatch:
        """The prepared batch, with decisions that must not train masked."""
        return batch

    def room(self, outstanding: int) -> int:
        """How many more groups may be dispatched now."""
        return max(0, self.capacity - outstanding)

    def wanted(self, stored: int, flying: int, oversampling: float) -> int:
        """How many more groups to dispatch if some will be dropped: each open place is requested ``oversampling`` times.

        At 1 it is ``room(stored + flying)``. Above 1 more than ``capacity`` may survive; then the latest are surplus, and dropped.
        The bound holds all the same: dispatch adds to the latest deadlines only, the step rule looks at all that is in flight, and
        with nothing in flight at most (a + 1) B groups are left, as in the proof.
        """
        return max(0, math.ceil(self.room(stored) * oversampling - 1e-9) - flying)

    def may_step(self, version: int, remaining: Sequence[int]) -> bool:
        """Whether the step version -> version + 1 leaves every remaining group (its version at dispatch) time to be consumed.

        A group dispatched at version u must be consumed by version u + k. The deadlines d_0 <= d_1 <= ... of those that remain can
        all be met with B groups a step if d_i >= v + 1 + floor(i / B).
        """
        deadlines = sorted(dispatched + self.max_staleness for dispatched in remaining)
        return all(deadline >= version + 1 + i // self.groups_per_step for i, deadline in enumerate(deadlines))

    def _earliest(self, stored: Sequence[int]) -> list[int]:
        """The B finished groups dispatched earliest, [] while there are fewer."""
        return list(stored[: self.groups_per_step]) if len(stored) >= self.groups_per_step else []

    def _paced(self, stored: Sequence[int], outstanding: Mapping[int, int], version: int) -> list[int]:
        """The same, if all others can still be consumed in time. (Deadlines grow with the order of dispatch.)"""
        chosen = self._earliest(stored)
        return chosen if self._in_time(chosen, outstanding, version) else []

    def _in_time(self, chosen: Sequence[int], outstanding: Mapping[int, int], version: int) -> bool:
        taken = set(chosen)
        return self.may_step(version, [u for index, u in outstanding.items() if index not in taken])


@dataclass(frozen=True, kw_only=True)
class AbstractStalenessSpec(AbstractPart, ABC):
    """A rule as a recipe names it; ``bounded`` is whether no age exceeds k.

    ``admission`` = a: how many versions ahead samplers may be, at most k. Below k, long rollouts still have k versions to finish, and
    fewer batches wait in line. None: k. 0: synchronous.
    """

    admission: int | None = None

    bounded: ClassVar[bool] = True

    @abstractmethod
    def start(self, max_staleness: int, groups_per_step: int) -> AbstractStaleness:
        """``max_staleness`` and ``groups_per_step``: the run's own k and prompts_per_step."""


@dataclass(frozen=True, kw_only=True)
class Pace(AbstractStalenessSpec):
    """Takes the finished groups that were dispatched first, as long as all others can still be used in time; drops nothing.

    k = 0 is the synchronous loop: B groups are dispatched, all are consumed, the weights move, the next B are dispatched.
    """

    def start(self, max_staleness: int, groups_per_step: int) -> Paced:
        return Paced(self.admission, max_staleness, groups_per_step)


class Paced(AbstractStaleness):
    def batch(self, stored: Sequence[int], outstanding: Mapping[int, int], version: int) -> list[int]:
        return self._paced(stored, outstanding, version)


@dataclass(frozen=True, kw_only=True)
class Wait(AbstractStalenessSpec):
    """Takes the B groups that were dispatched first, once all of them are finished; drops nothing.

    Batches consist of the same tasks regardless of timing. The cost: one long rollout blocks the learner even if another batch is
    ready. k = 1 with a learner slower than the samplers is one-step-off training.
    """

    def start(self, max_staleness: int, groups_per_step: int) -> InOrder:
        return InOrder(self.admission, max_staleness, groups_per_step)


class InOrder(AbstractStaleness):
    def batch(self, stored: Sequence[int], outstanding: Mapping[int, int], version: int) -> list[int]:
        chosen = sorted(outstanding)[: self.groups_per_step]
        full = len(chosen) == self.groups_per_step and set(chosen) <= set(stored)
        return chosen if full and self._in_time(chosen, outstanding, version) else []


@dataclass(frozen=True, kw_only=True)
class Withhold(AbstractStalenessSpec):
    """Dispatches tasks in waves of (a + 1) B groups, the next once the last is used up; drops nothing.

    The learner never waits for more than a batch of the current wave; the samplers run empty at the end of each.
    """

    def start(self, max_staleness: int, groups_per_step: int) -> InWaves:
        return InWaves(self.admission, max_staleness, groups_per_step)


class InWaves(AbstractStaleness):
    def batch(self, stored: Sequence[int], outstanding: Mapping[int, int], version: int) -> list[int]:
        return self._paced(stored, outstanding, version)

    def wanted(self, stored: int, flying: int, oversampling: float) -> int:
        """Nothing while a batch is stored or anything is in flight. (What filters dropped may leave less than a batch to a wave.)"""
        return 0 if flying or stored >= self.groups_per_step else super().wanted(stored, flying, oversampling)


@dataclass(frozen=True, kw_only=True)
class DropStale(AbstractStalenessSpec):
    """Takes the finished groups that were dispatched first; drops those with a decision older than k as ``stale``.

    Long rollouts become too old, so training selects against them: see ``selection/`` in the metrics.
    """

    def start(self, max_staleness: int, groups_per_step: int) -> StaleDropped:
        return StaleDropped(self.admission, max_staleness, groups_per_step)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.run.max_staleness > 0:
            yield Advice(
                "DropStale selects against slow rollouts (see selection/sampled and selection/trained); Pace keeps the bound without it"
            )


class StaleDropped(AbstractStaleness):
    def batch(self, stored: Sequence[int], outstanding: Mapping[int, int], version: int) -> list[int]:
        return self._earliest(stored)

    def stale(self, group: Group, version: int) -> bool:
        counted = [r.version_S[r.mask_S] for r in group.rows]
        return any(len(version_K) and version - int(version_K.min()) > self.max_staleness for version_K in counted)


@dataclass(frozen=True, kw_only=True)
class MaskStale(AbstractStalenessSpec):
    """Takes the finished groups that were dispatched first; decisions older than k count in rewards and advantages, but get no
    gradient.

    A group with nothing left is dropped as ``stale``. The early decisions of long rollouts are never trained.
    """

    def start(self, max_staleness: int, groups_per_step: int) -> StaleMasked:
        return StaleMasked(self.admission, max_staleness, groups_per_step)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        for part in whole.doing(BALANCES):
            yield Refusal(
                f"MaskStale takes old decisions out of rollouts, and {type(part).__name__} sums whole ones: staleness=Pace()"
            )


class StaleMasked(AbstractStaleness):
    def batch(self, stored: Sequence[int], outstanding: Mapping[int, int], version: int) -> list[int]:
        return self._earliest(stored)

    def stale(self, group: Group, version: int) -> bool:
        counted = [r.version_S[r.mask_S] for r in group.rows]
        return all(not len(version_K) or version - int(version_K.max()) > self.max_staleness for version_K in counted)

    def trained(self, batch: TrainBatch, version: int) -> TrainBatch:
        young_NS = version - batch.column("version_NS", self) <= self.max_staleness
        return replace(batch, mask_NS=batch.mask_NS & young_NS)


@dataclass(frozen=True, kw_only=True)
class Reweight(AbstractStalenessSpec):
    """Takes the finished groups that were dispatched first, with decisions of any age; k only limits how many groups are outstanding.

    The age is not bounded. Old decisions are corrected by importance weights, so the run must have some.
    """

    bounded: ClassVar[bool] = False

    def start(self, max_staleness: int, groups_per_step: int) -> Unbounded:
        return Unbounded(self.admission, max_staleness, groups_per_step)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not weighed(whole):
            yield Refusal(
                "Reweight trains on data older than max_staleness with importance weights, and this run has none: set "
                "correction=TruncatedWeight() or anchor=Behavior()"
            )
        yield Advice(
            "Reweight drops the bound: decisions older than max_staleness are trained on at any age (see staleness/max)"
        )


class Unbounded(AbstractStaleness):
    def batch(self, stored: Sequence[int], outstanding: Mapping[int, int], version: int) -> list[int]:
        return self._earliest(stored)


def weighed(whole: Composition) -> bool:
    """Whether decisions may be of any age: the run weights them by how they were sampled, or fits them whoever sampled them."""
    if whole.doing(BALANCES):
        return True
    weigh = whole.all(AbstractCorrection, AbstractObjective)
    return bool(whole.doing(ABSORBS_DISCREPANCY)) or any(DISCREPANCY in part.consumes for part in weigh)
