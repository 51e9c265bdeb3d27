"""The clipped surrogate of denoising steps, whose clip range follows from how log-probabilities are reduced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically, k3_of
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class ClippedStep(AbstractObjective):
    """The clipped surrogate with one ratio per denoising step (DDPO, arXiv:2305.13301; Flow-GRPO, arXiv:2505.05470).

    loss = -min(r A, clip(r, 1 - c clip_low, 1 + c clip_high) A),  r = exp(logprob - proximal), where c = 1 for log-probabilities
    that are sums over the D dimensions of a sample and c = 1 / D for means (the record says which: ``reduce``).

    - reduce = sum: ClippedRatio.
    - D = 1: sum and mean are one.
    - at logprob = proximal its gradient is that of Reinforce.

    Published ranges of 1e-5 to 1e-4 are for means over D = 65,536; here ``clip_low`` is that times D.
    Metrics: the shares of steps clipped on each side; ``kl/old``.

    Confidence: verified.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS", "scale_NS"})

    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).where(batch.mask_NS, 0)
        scale_NS = batch.column("scale_NS", self)
        surrogate_NS, clipped = clip_pessimistically(
            log_ratio_NS.exp(),
            batch.column("advantage_NS", self),
            scale_NS * self.clip_low,
            scale_NS * self.clip_high,
        )
        return Terms(-surrogate_NS, clipped | {"kl/old": k3_of(log_ratio_NS)})
