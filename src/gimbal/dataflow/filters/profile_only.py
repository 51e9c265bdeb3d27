"""Keeps profiling rollouts out of training."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.composition import DROPS_PROFILES
from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.curricula.profiled import PROFILE
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class ProfileOnly(AbstractFilter):
    """Drops the groups sampled for the profile of curricula.Profiled (sGPO, arXiv:2606.08854).

    - without Profiled: nothing is dropped.

    Confidence: verified.
    """

    def __call__(self, group: Group) -> Group | Drop:
        return Drop("profile") if group.task.columns.get(PROFILE) else group

    def effects(self) -> frozenset[str]:
        return frozenset({DROPS_PROFILES})
