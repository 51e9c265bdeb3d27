"""Earlier turns get less of the credit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class TurnDiscount(AbstractAdvantage):
    """Discounts advantages by the number of turns still to come, equally for all decisions of a turn (IPA, arXiv:2512.24873).

    A <- gamma^(last - turn) A, with ``last`` the last turn that has a counted decision.

    - ``gamma`` = 1, or one turn: A.
    - ``gamma`` = 0: only the last turn.
    - after ReturnToGo, with the reward at the end: the discounted return of the chunk, as in IPA.

    Confidence: partial; ours: ``gamma``, which is not published, and which turn is last.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS"})

    gamma: float = 0.95

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"TurnDiscount.gamma is {self.gamma}; it must be in [0, 1], where 1 is off")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        turn_NS = batch.turns_NS.where(batch.mask_NS, -1)
        ahead_NS = (turn_NS.amax(-1, keepdim=True) - turn_NS).where(batch.mask_NS, 0)
        return batch.column("advantage_NS", self) * torch.tensor(self.gamma) ** ahead_NS
