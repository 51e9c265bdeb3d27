"""Importance weights for the sampler's distribution; weights outside a band are dropped, not clipped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import AbstractCorrection
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class MaskedWeight(AbstractCorrection):
    """Masked importance sampling (IcePop, arXiv:2510.18855; MIS, Liu et al. 2025).

    weight = w if low <= w <= high else 0 (1 instead of w without ``weigh``), w = exp(proximal - behavior) of the decision, of the
    sequence (product) or its geometric mean. ``veto`` also drops any sequence with a decision of w < veto.

    - w = 1: 1 everywhere.
    - ``low`` = 0, ``high`` = inf: exact importance weights.
    - IcePop is the default; MIS is level "sequence" with low 0, high 2; geometric rejection is level "geometric", weigh False.

    Dropped decisions stay in the loss's denominator; ``renormalise`` scales the rest by counted / kept.

    Confidence: verified.
    """

    level: Literal["token", "sequence", "geometric"] = "token"
    low: float = 0.5
    high: float = 5.0
    weigh: bool = True
    veto: float = 0.0
    renormalise: bool = False

    def __post_init__(self) -> None:
        if not self.low <= 1 <= self.high:
            raise ValueError(
                f"MaskedWeight keeps [{self.low}, {self.high}]; the band must contain 1, the weight of equal engines"
            )
        if self.level not in ("token", "sequence", "geometric"):
            raise ValueError(f"MaskedWeight.level is {self.level!r}; choose token, sequence or geometric")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        token_NS = batch.column("proximal_NS", self) - batch.column("behavior_NS", self)
        match self.level:
            case "token":
                log_NS = token_NS
            case "sequence":
                log_NS = token_NS.sum(-1, keepdim=True).expand_as(token_NS)
            case "geometric":
                log_NS = ops.sequence_mean(token_NS, batch.mask_NS)[:, None].expand_as(token_NS)
        weight_NS = ops.ratio(log_NS, torch.zeros_like(log_NS))
        keep_NS = (weight_NS >= self.low) & (weight_NS <= self.high) & batch.mask_NS
        if self.veto > 0:
            keep_NS &= ~((token_NS < math.log(self.veto)) & batch.mask_NS).any(-1, keepdim=True)
        kept_NS = torch.where(keep_NS, weight_NS if self.weigh else torch.ones_like(weight_NS), 0.0)
        return kept_NS * (batch.mask_NS.sum() / keep_NS.sum().clamp(min=1)) if self.renormalise else kept_NS
