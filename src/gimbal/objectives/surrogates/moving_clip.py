"""Reused data: the clip window moves to where the policy stood before the update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import DISCREPANCY, UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically, k3_of
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class MovingClip(AbstractObjective):
    """The surrogate of the ratio to the sampler, clipped around its value before the update (ReMix, arXiv:2507.06892).

    loss = -min(q A, clip(q, v - clip_low, v + clip_high) A),  q = exp(logprob - behavior),  v = exp(proximal - behavior): the centre is
    1 on fresh data and moves with the age of the data. It consumes both ratios: use it with the anchor Recompute and no correction.

    - behavior = proximal (fresh data, equal engines): ClippedRatio.
    - ``clip_low`` = ``clip_high`` = inf: -q A, exact importance weights by decision.
    - one decision with weight v: v times ClippedRatio with bounds clip_low / v and clip_high / v.

    Published: clips .2, data of up to two versions ago in 4 of 10 rows, two passes over a batch.

    Confidence: verified (secondary); ours: ``behavior`` is the engine's own log-probability, so v includes the discrepancy.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE, DISCREPANCY})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "behavior_NS", "advantage_NS"})

    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        proximal_NS, behavior_NS = batch.column("proximal_NS", self), batch.column("behavior_NS", self)
        kept_NS = logprob_NS.where(batch.mask_NS, 0)
        centre_NS, total_NS = ops.ratio(proximal_NS, behavior_NS), ops.ratio(kept_NS, behavior_NS)
        # clip_pessimistically takes distances from 1.
        low_NS, high_NS = 1 - centre_NS + self.clip_low, centre_NS + self.clip_high - 1
        surrogate_NS, clipped = clip_pessimistically(total_NS, batch.column("advantage_NS", self), low_NS, high_NS)
        update_NS = ops.log_ratio(kept_NS, proximal_NS)
        metrics = clipped | {"clip_centre": centre_NS, "kl/old": k3_of(update_NS)}
        return Terms(torch.where(batch.mask_NS, -surrogate_NS, 0), metrics)
