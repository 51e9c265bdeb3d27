"""Keeps solved groups with a given probability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gimbal.composition import KEEPS_SOLVED, Advice, Composition, Verdict
from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.curricula.solved_share import COLUMN, SolvedShare
from gimbal.ops import philox
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class KeepSolved(AbstractFilter):
    """Drops groups without a success, keeps mixed groups, and keeps solved groups with the probability in the task's column
    ``keep_solved``, which curricula.SolvedShare sets (DECS, arXiv:2509.25827).

    A rollout is right if the reward ``right``, or its whole score if that is empty, reaches ``threshold``.

    - no such column, or a probability of 0: ZeroVariance, for binary rewards.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("right",)

    right: str = ""
    threshold: float = 1.0
    seed: int = 0

    def __call__(self, group: Group) -> Group | Drop:
        earned = [r.scores[self.right] if self.right else r.earned for r in group.episodes]
        right = sum(value >= self.threshold for value in earned)
        if right == 0:
            return Drop("all_wrong")
        chance = float(group.task.columns.get(COLUMN, 0.0))
        solved = right == len(group.episodes)
        draw = philox(self.seed, "keep_solved", group.task.id, group.index).random()
        return Drop("solved") if solved and draw >= chance else group

    def effects(self) -> frozenset[str]:
        return frozenset({KEEPS_SOLVED})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(SolvedShare):
            yield Advice("SolvedShare sets which solved groups KeepSolved lets through: use both or neither")
