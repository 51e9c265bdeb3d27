"""The clipped surrogate, one ratio a sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import Advice, Composition, Verdict
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically, k3_of
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class SequenceRatio(AbstractObjective):
    """Ratio and clip per sequence, by the geometric mean of the ratios (GSPO, arXiv:2507.18071).

    s_i = exp(1/L_i sum_t m (logprob - proximal));  loss_it = -min(s_it A_it, clip(s_it, 1 - clip_low, 1 + clip_high) A_it) with
    s_it = sg[s_i] exp(logprob - sg[logprob]): the value of s_i, the gradient of decision t. Use with SequenceMean.

    - L_i = 1: ClippedRatio.
    - constant A over a sequence: value and gradient of -min(s_i A_i, clip(s_i) A_i).

    Bounds are two to three orders tighter than a token's, since the mean over a sequence stays near 1.

    Confidence: verified.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS"})

    clip_low: float = 3e-4
    clip_high: float = 4e-4

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).where(batch.mask_NS, 0)
        mean_N = ops.sequence_mean(log_ratio_NS, batch.mask_NS).detach()
        # The value is the sequence's; the gradient flows through each decision's own log-probability.
        ratio_NS = (mean_N[:, None] + log_ratio_NS - log_ratio_NS.detach()).exp()
        surrogate_NS, clipped = clip_pessimistically(
            ratio_NS, batch.column("advantage_NS", self), self.clip_low, self.clip_high
        )
        return Terms((-surrogate_NS).where(batch.mask_NS, 0), clipped | {"kl/old": k3_of(log_ratio_NS)})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(ops.SequenceMean):
            yield Advice(
                "SequenceRatio with an aggregation other than SequenceMean weights long sequences more than the method intends"
            )
