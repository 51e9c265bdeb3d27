"""The clipped surrogate of denoising steps, with a ratio of one scale at all noise levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import DISCREPANCY, UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class NormalizedStep(AbstractObjective):
    """ClippedStep on a normalised ratio (GRPO-Guard, arXiv:2510.22319).

    log r = std (logprob - behavior) + c |mean - mean_s|^2 / (2 std), mean_s the sampler's mean, c = 1 for log-probabilities that are
    sums over the D dimensions and 1 / D for means. loss = -min(r A, clip(r, 1 - c clip_low, 1 + c clip_high) A).

    - log r = c z . (mean - mean_s), z the sampler's noise: over its samples the mean is 0 and the deviation that of a shift of the
      mean, at all noise levels. The plain log-ratio has a mean below 0 and hardly reaches the upper bound.
    - mean = mean_s: r = 1, and the gradient is std times that of Reinforce.

    The ratio is to the sampler, so it includes staleness and discrepancy. ``clip_low`` and ``clip_high`` are for sums, and about a
    step's standard deviation times ClippedStep's. The paper's step weights are left out; published clips are 1e-6 to
    1e-5 of means over 65,536 dimensions.

    Confidence: verified for the ratio.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE, DISCREPANCY})
    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", "behavior_NS", "std_NS", "shift_NSD", "scale_NS"})

    clip_low: float = 0.1
    clip_high: float = 0.1

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        scale_NS = batch.column("scale_NS", self)
        std_NS = batch.column("std_NS", self).where(batch.mask_NS, 1)
        # What its mean is below 0.
        below_NS = scale_NS * batch.column("shift_NSD", self).square().sum(-1) / (2 * std_NS)
        plain_NS = ops.log_ratio(logprob_NS, batch.column("behavior_NS", self))
        log_ratio_NS = ops.log_ratio(std_NS * plain_NS, -below_NS).where(batch.mask_NS, 0)
        surrogate_NS, clipped = clip_pessimistically(
            log_ratio_NS.exp(),
            batch.column("advantage_NS", self),
            scale_NS * self.clip_low,
            scale_NS * self.clip_high,
        )
        return Terms(-surrogate_NS, clipped | {"ratio/normalized": log_ratio_NS.detach()})
