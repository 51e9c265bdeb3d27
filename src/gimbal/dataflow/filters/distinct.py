"""Rollouts that say the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from gimbal.dataflow.base import AbstractFilter
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class Distinct(AbstractFilter):
    """Of rollouts of a group that say the same to the letter the first ``copies`` stay (de-duplication, as EvoCUA, arXiv:2601.15876).

    The group's other rollouts are then compared with one another. It reads texts, so an environment of actions without any has nothing
    to tell apart, and its groups pass as they are. ``drops/rollouts/Distinct`` counts what left.

    - ``copies`` of a group's size or more, or all texts different: the group as it is.

    It selects: an answer that is drawn often counts as if it were drawn ``copies`` times, so what the policy is sure of is trained less
    than its share (see ``selection/``).
    """

    copies: int = 1

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise ValueError(f"Distinct.copies is {self.copies}; it counts the copies of a text that stay, at least 1")

    def __call__(self, group: Group) -> Group | Drop:
        seen = Counter[str]()
        kept = []
        for episode in group.episodes:
            seen[episode.text] += 1
            if not episode.text or seen[episode.text] <= self.copies:
                kept.append(episode)
        return group if len(kept) == len(group.episodes) else replace(group, episodes=tuple(kept))
