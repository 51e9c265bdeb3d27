"""The first-order approximation of the sequence objective, from the distribution that was sampled from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import DISCREPANCY, UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, k3_of
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class TotalRatioWeight(AbstractObjective):
    """A policy gradient weighted by the capped ratio to the sampler, masked by the clip on the update (MiniRL, arXiv:2512.01374).

    loss = -M sg[min(rho, cap)] A logprob,  rho = exp(logprob - behavior); M = 0 where (A > 0 and r > 1 + clip_high) or (A < 0 and
    r < 1 - clip_low), r = exp(logprob - proximal). Use with SequenceSum and GroupCentered: neither lengths nor deviations divide.

    - behavior = proximal = logprob: Reinforce.
    - one update per batch (r = 1): only importance weights, no mask.
    - to first order in rho - 1 the sum over a sequence is the sequence's own ratio; the remainder is of second order.

    Published: clip_low .2, clip_high .27. It consumes both ratios, so use no correction.

    Confidence: partial; from summaries; ``cap`` and unscaled advantages are from memory.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE, DISCREPANCY})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "behavior_NS", "advantage_NS"})

    clip_low: float = 0.2
    clip_high: float = 0.27
    cap: float = 5.0

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)
        if self.cap < 1:
            raise ValueError(
                f"TotalRatioWeight.cap is {self.cap}; it bounds a weight that is 1 on equal engines, so it is at least 1"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).detach().where(batch.mask_NS, 0)
        total_NS = ops.ratio(logprob_NS.detach().where(batch.mask_NS, 0), batch.column("behavior_NS", self))
        advantage_NS, ratio_NS = batch.column("advantage_NS", self), log_ratio_NS.exp()
        low_NS = (advantage_NS < 0) & (ratio_NS < 1 - self.clip_low)
        high_NS = (advantage_NS > 0) & (ratio_NS > 1 + self.clip_high)
        weight_NS = total_NS.clamp(max=self.cap) * ~(low_NS | high_NS)
        metrics = {"clip_ratio/low": low_NS.float(), "clip_ratio/high": high_NS.float(), "kl/old": k3_of(log_ratio_NS)}
        return Terms((-weight_NS * advantage_NS * logprob_NS).where(batch.mask_NS, 0), metrics)
