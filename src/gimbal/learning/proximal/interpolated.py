"""Between the policy that sampled and the present one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.learning.proximal.base import AbstractAnchor, Evaluate
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class Interpolated(AbstractAnchor):
    """proximal = a mix of the recorded and the current log-probability, for when the weights that sampled are gone (the linear middle
    policy of arXiv:2605.12070).

    log proximal = share behavior + (1 - share) logprob, or with ``mean`` "arithmetic" the log of the same mix of probabilities.

    - ``share`` = 0: Recompute.
    - ``share`` -> 1: Behavior, which is the anchor to use there.
    - geometric, first update on a batch: r = rho^share and w = rho^(1 - share), rho the ratio to the sampler. A clip of r at 1 + e is
      a clip of rho at (1 + e)^(1 / share): the mix moves the bounds and separates mismatch from staleness no better than rho.

    Published as the cheap middle policy, which an average of weights (Ewma) and the exact version (SamplingVersion) outperform.

    Confidence: verified; ours: ``share``, and taking the policy before the update as current.
    """

    share: float = 0.5
    mean: Literal["geometric", "arithmetic"] = "geometric"

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ValueError(
                f"Interpolated.share is {self.share}; it must be in [0, 1): for only the sampler use anchor=Behavior()"
            )

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        present_NS, behavior_NS = evaluate(batch), batch.column("behavior_NS", self)
        if self.mean == "geometric" or self.share == 0:
            return torch.lerp(present_NS, behavior_NS.to(present_NS.dtype), self.share)
        mixed_NS = torch.logaddexp(behavior_NS + math.log(self.share), present_NS + math.log1p(-self.share))
        return mixed_NS.where(batch.mask_NS, 0)
