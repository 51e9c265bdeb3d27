"""Trains on fewer rollouts than vote."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gimbal.dataflow.base import AbstractFilter
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class FirstOf(AbstractFilter):
    """The first ``count`` rollouts of a group train, the others have only been scored with them (TTRL, arXiv:2504.16084).

    "First" is by sample number, not by speed, so nothing is selected. Advantages are computed among those that stay.
    ``drops/rollouts/FirstOf`` counts the others.

    - ``count`` at least the group's size: the group unchanged.

    Published: 32 of 64.

    Confidence: verified.
    """

    count: int = 8

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"FirstOf.count is {self.count}; it counts rollouts that train, at least 1")

    def __call__(self, group: Group) -> Group | Drop:
        first = sorted(episode.sample for episode in group.episodes)[: self.count]
        return replace(group, episodes=tuple(e for e in group.episodes if e.sample in first))
