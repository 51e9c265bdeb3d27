"""Keeps profiling rollouts out of training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gimbal.composition import DROPS_PROFILES, Composition, Refusal, Verdict
from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.curricula.profiled import PROFILE, Profiled
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class ProfileOnly(AbstractFilter):
    """Drops the groups sampled for the profile of curricula.Profiled (sGPO, arXiv:2606.08854).

    - without Profiled: nothing is dropped.

    Confidence: verified.
    """

    def __call__(self, group: Group) -> Group | Drop:
        return Drop("profile") if group.task.columns.get(PROFILE) else group

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        # A curriculum of the user's own may give such tasks too.
        if not whole.has(Profiled) and type(whole.run.curriculum).__module__.startswith("gimbal."):
            yield Refusal(
                f"ProfileOnly drops nothing: only curriculum='Profiled()' tries tasks only for their profile, and this run has "
                f"{type(whole.run.curriculum).__name__}; take ProfileOnly out of filters, or set that curriculum"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({DROPS_PROFILES})
