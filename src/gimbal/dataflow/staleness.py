"""The staleness bound: when a group may be dispatched, and when the learner may step (docs/staleness.md has the proof).

The age of a decision is the learner's version at the moment its gradient is taken minus the version of the weights that drew it.
``Pace`` keeps every age within ``max_staleness`` and never drops a rollout: it paces the two sides instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """k = ``max_staleness`` versions, B = ``groups_per_step``. A group dispatched at version u must be consumed by version u + k.

    Admission: at most (k + 1) B groups are outstanding (dispatched, neither consumed nor dropped).
    Step: from version v, consuming a batch, only if the remaining deadlines d_0 <= d_1 <= ... can all still be met with B groups
    a step: d_i >= v + 1 + floor(i / B).

    k = 0 is the synchronous loop: B groups are dispatched, all are consumed, the weights move, the next B are dispatched.
    """

    max_staleness: int
    groups_per_step: int

    def room(self, outstanding: int) -> int:
        """How many more groups may be dispatched now."""
        return max(0, self.capacity - outstanding)

    @property
    def capacity(self) -> int:
        """(k + 1) B: the most finished groups that may wait."""
        return (self.max_staleness + 1) * self.groups_per_step

    def wanted(self, stored: int, flying: int, oversampling: float) -> int:
        """How many more groups to dispatch where some will be dropped: each place not yet filled is asked for ``oversampling`` times.

        At 1 it is ``room(stored + flying)``. Above 1 more than ``capacity`` may survive; then the latest are surplus, and dropped.
        The bound holds all the same: dispatch adds to the latest deadlines only, the step rule looks at all that is in flight, and
        with nothing in flight at most (k + 1) B groups are left, as in the proof.
        """
        return max(0, math.ceil(self.room(stored) * oversampling - 1e-9) - flying)

    def may_step(self, version: int, remaining: Sequence[int]) -> bool:
        """Whether the step version -> version + 1 leaves every remaining group (its version at dispatch) time to be consumed."""
        deadlines = sorted(dispatched + self.max_staleness for dispatched in remaining)
        return all(deadline >= version + 1 + i // self.groups_per_step for i, deadline in enumerate(deadlines))
