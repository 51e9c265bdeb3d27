"""The critic's regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import FITS_CRITIC
from gimbal.objectives.base import AbstractObjective
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class ValueLoss(AbstractObjective):
    """The squared error of the critic, clipped around its old estimate (PPO, arXiv:1707.06347).

    loss = coef/2 max((V - target)^2, (V_old + clip(V - V_old, -clip, clip) - target)^2).

    - ``clip`` = inf: plain squared error.
    - the gradient is 0 where V has moved further than ``clip`` towards the target's side and the clipped error is the larger.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"new_value_NS", "value_NS", "target_NS"})

    coef: float = 0.5
    clip: float = math.inf

    def __post_init__(self) -> None:
        if self.clip <= 0:
            raise ValueError(
                f"ValueLoss.clip is {self.clip}; it must be a distance from the old estimate, above 0 (inf is off)"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        new_NS, old_NS = batch.column("new_value_NS", self), batch.column("value_NS", self)
        target_NS = batch.column("target_NS", self)
        error_NS = (new_NS - target_NS).square()
        if self.clip < math.inf:
            clipped_NS = old_NS + (new_NS - old_NS).clamp(-self.clip, self.clip)
            error_NS = torch.maximum(error_NS, (clipped_NS - target_NS).square())
        loss_NS = 0.5 * error_NS
        return Terms(self.coef * loss_NS, {"value/loss": loss_NS.detach()})

    def effects(self) -> frozenset[str]:
        return frozenset({FITS_CRITIC})
