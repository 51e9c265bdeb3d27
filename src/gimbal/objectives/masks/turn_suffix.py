"""Only what comes after the point of divergence trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor

from gimbal.objectives.base import AbstractMask
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class TurnSuffix(AbstractMask):
    """Excludes the prefix a retry shares with the attempt it branched from: it has no contrast (pivotal credit, R3L,
    arXiv:2601.03715).

    keep = turn >= first + k,  k being the rollout's fact ``restart`` ("score/NAME": the turn in which a retry began, for both
    rollouts of the pair; 0 for the others), or 0 if none is named. With ``renormalise`` the prefix leaves the denominators too.

    - k = 0 with ``first`` = 0: the whole rollout trains.
    - k beyond the last turn: nothing of it does.

    Confidence: verified; ours: ``first``.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    restart: str = ""
    first: int = 0
    renormalise: bool = True

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError(f"TurnSuffix.first is {self.first}; it must be a number of turns, 0 or above")

    def __call__(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        turn_NS = batch.turns_NS - self.first
        if self.restart:
            turn_NS = turn_NS - batch.column(self.restart, self)[:, None]
        return (turn_NS >= 0) & batch.mask_NS
