"""Importance weights for the sampler's distribution, cut from above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import AbstractCorrection
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class TruncatedWeight(AbstractCorrection):
    """Truncated importance sampling for the gap between sampler and trainer (TIS, Yao et al. 2025; FlashRL).

    weight = min(w, cap), w = exp(proximal - behavior) of the decision, or of the whole sequence: exp(sum_t m (proximal - behavior)).

    - behavior = proximal: 1 everywhere.
    - ``cap`` = inf: exact importance weights.
    - ``cap`` = 1: weights only decrease.

    ``normalise`` divides by the mean weight after truncation. Usual caps: 2 for decisions, 2..10 for sequences; decoupled PPO
    (arXiv:2505.24298) uses 5.

    Confidence: verified.
    """

    level: Literal["token", "sequence"] = "token"
    cap: float = 2.0
    normalise: bool = False

    def __post_init__(self) -> None:
        if self.cap <= 0:
            raise ValueError(
                f"TruncatedWeight.cap is {self.cap}; it bounds a ratio around 1 from above, so it exceeds 0"
            )
        if self.level not in ("token", "sequence"):
            raise ValueError(f"TruncatedWeight.level is {self.level!r}; choose token or sequence")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        log_NS = batch.column("proximal_NS", self) - batch.column("behavior_NS", self)
        if self.level == "sequence":
            log_NS = log_NS.sum(-1, keepdim=True).expand_as(log_NS)
        weight_NS = ops.ratio(log_NS, torch.zeros_like(log_NS)).clamp(max=self.cap)
        if self.normalise:
            weight_NS = weight_NS / ops.masked_mean(weight_NS, batch.mask_NS).clamp(min=1e-8)
        return weight_NS * batch.mask_NS
