"""A restraint that lets go where the policy has moved far."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import Advice, Composition, Verdict
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically, k3_of
from gimbal.records import Terms, TrainBatch

PAST = "anchor/"  # facts of Snapshots: log-probabilities under older weights, by age


@dataclass(frozen=True, kw_only=True)
class GaussianTrust(AbstractObjective):
    """The surrogate with a bounded pull to recent policies that fades with distance (GTR, arXiv:2606.03382).

    loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + strength (1 - sum_k p_k exp(-d_k^2 / (2 sigma^2))),
    d_k = logprob - anchor_k, p_k ~ decay^k; anchor 0 is ``proximal``, the older ones come from the anchor Snapshots. With
    ``responsible`` p_k ~ sg[decay^k exp(-d_k^2 / (2 sigma^2))]: the nearest anchor pulls. The pull on logprob is (strength / sigma^2)
    sum_k p_k d_k exp(...): that of a spring near an anchor, greatest at sigma, never above strength / (sigma sqrt(e)), and 0 far away.

    - ``sigma`` = inf with strength / sigma^2 = c fixed: c k2(logprob, anchor), a quadratic penalty.
    - ``strength`` = 0: ClippedRatio with the same clips; these are off by default.
    - ``decay`` = 0, or no snapshots: the kernel of ``proximal`` alone.
    - at r = 1 with one anchor: the gradient of Reinforce.

    Only the abstract is public, without numbers. A clip of .2 to .4 works well with it.

    Confidence: abstract-only; ours: the form of kernel and mixture, and every default.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS"})

    strength: float = 0.2
    sigma: float = 0.25
    decay: float = 0.5
    responsible: bool = False
    clip_low: float = math.inf
    clip_high: float = math.inf

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)
        if self.strength < 0 or self.sigma <= 0 or not 0 <= self.decay <= 1:
            raise ValueError(
                f"GaussianTrust has strength {self.strength}, sigma {self.sigma} and decay {self.decay}; strength is 0 or above (0 is "
                "off), sigma a log-ratio above 0, decay in [0, 1]"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        past = sorted((name for name in batch.facts if name.startswith(PAST)), key=lambda name: int(name[len(PAST) :]))
        anchors = [batch.column(name, self) for name in ("proximal_NS", *past)]
        gap_KNS = torch.stack([ops.log_ratio(logprob_NS, x).where(batch.mask_NS, 0) for x in anchors])
        exponent_KNS = 0.5 * (gap_KNS / self.sigma).square()
        share_KNS = self._share(exponent_KNS.detach())
        # Less than 1 by what expm1 says exactly, however wide the kernel.
        price_NS = -(share_KNS * torch.expm1(-exponent_KNS)).sum(0)
        surrogate_NS, clipped = clip_pessimistically(
            gap_KNS[0].exp(), batch.column("advantage_NS", self), self.clip_low, self.clip_high
        )
        loss_NS = self.strength * price_NS - surrogate_NS
        metrics = clipped | {"trust/price": price_NS.detach(), "kl/old": k3_of(gap_KNS[0])}
        return Terms(loss_NS.where(batch.mask_NS, 0), metrics)

    def _share(self, exponent_KNS: Float[Tensor, "K N S"]) -> Float[Tensor, "K N S"]:
        """How much each anchor counts; shares sum to 1."""
        age_K = torch.arange(len(exponent_KNS), device=exponent_KNS.device, dtype=exponent_KNS.dtype)
        # 0 ** 0 is 1: with decay 0 the newest anchor alone.
        log_KNS = (torch.tensor(self.decay, dtype=age_K.dtype) ** age_K).log()[:, None, None].expand_as(exponent_KNS)
        return (log_KNS - exponent_KNS if self.responsible else log_KNS).softmax(0)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.updates > 1 and math.inf in (self.clip_low, self.clip_high):
            yield Advice(
                "GaussianTrust without a clip and several updates per batch: its pull fades far away, so nothing bounds the ratio"
            )
