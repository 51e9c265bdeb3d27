"""Removes truncated rollouts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gimbal.dataflow.base import AbstractFilter
from gimbal.records import Drop, Group


@dataclass(frozen=True)
class DropOverlong(AbstractFilter):
    """Removes truncated rollouts from their group (overlong filtering, DAPO, arXiv:2503.14476); a group without any left is a Drop."""

    def __call__(self, group: Group) -> Group | Drop:
        kept = tuple(episode for episode in group.episodes if episode.stop != "length")
        return replace(group, episodes=kept) if kept else Drop("overlong")
