"""Removes duplicate rollouts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from gimbal.dataflow.base import AbstractFilter
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class Distinct(AbstractFilter):
    """Keeps the first ``copies`` of a group's rollouts with identical text (de-duplication, as in EvoCUA, arXiv:2601.15876).

    The remaining rollouts are then compared with one another. It reads texts, so groups of an environment without text pass unchanged.
    ``drops/rollouts/Distinct`` counts removed rollouts.

    - ``copies`` at least the group's size, or all texts different: the group unchanged.

    It selects: a frequent answer counts as if sampled ``copies`` times, so confident answers are trained on less than their share (see
    ``selection/``).
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
