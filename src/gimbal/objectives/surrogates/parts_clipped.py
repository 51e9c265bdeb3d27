"""The clipped surrogate with a separate trust region for continuous latents."""

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
from gimbal.records import Part, Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class PartsClipped(AbstractObjective):
    """Separate clips for the tokens and the latent vectors of a sequence (DePO / HyLaR, arXiv:2604.20328).

    loss = -min(r A, clip(r) A), with bounds ``clip_low``, ``clip_high`` on tokens and ``latent_low``, ``latent_high`` where the part is
    LATENT; where A < 0 r counts at most ``dual_clip``; log-ratios are cut at ±10. A latent's log-probability is that of a von
    Mises-Fisher distribution about the normalised hidden state, kappa mu.z + const. Use with PartMean(latent=.5).

    - no latent positions, or equal bounds: ClippedRatio.
    - PartMean(latent=0): only the tokens.

    Published: tokens .2 and .28, latents .1, dual clip 3.

    Confidence: verified.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS"})

    clip_low: float = 0.2
    clip_high: float = 0.28
    latent_low: float = 0.1
    latent_high: float = 0.1
    dual_clip: float = 3.0

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)
        check_bounds(self, self.latent_low, self.latent_high)
        if self.dual_clip <= 1:
            raise ValueError(
                f"PartsClipped.dual_clip is {self.dual_clip}; it bounds the ratio from above, so it exceeds 1"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        latent_NS = batch.parts_NS == Part.LATENT
        log_ratio_NS = (
            ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).clamp(-10, 10).where(batch.mask_NS, 0)
        )
        low_NS, high_NS = (
            log_ratio_NS.new_full(batch.shape, token).masked_fill(latent_NS, latent)
            for token, latent in ((self.clip_low, self.latent_low), (self.clip_high, self.latent_high))
        )
        surrogate_NS, metrics = clip_pessimistically(
            log_ratio_NS.exp(), batch.column("advantage_NS", self), low_NS, high_NS, self.dual_clip
        )
        return Terms(-surrogate_NS, metrics | {"kl/old": k3_of(log_ratio_NS)})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.run.policy.family.unit == "tokens":
            yield Advice(
                "PartsClipped has separate bounds for latent decisions, but a CausalLM samples none: it is ClippedRatio here"
            )
