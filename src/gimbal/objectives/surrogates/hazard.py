"""A smooth, bounded surrogate instead of a clip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from gimbal import ops
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import k3_of
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class HazardModulated(AbstractObjective):
    """Bounds the log-ratio by tanh and damps it by a detached Weibull hazard, separately for shifts up and down (MHPO,
    arXiv:2603.16929).

    loss = -exp(psi - sg[zeta]) A,  psi = bound tanh(log r / bound),
    zeta = (softplus(psi) / scale_up)^shape_up + (softplus(-psi) / scale_down)^shape_down.

    The gradient's weight, exp(psi - zeta) sech^2(log r / bound), never exceeds exp(bound). Use with SequenceMean.

    - ``bound`` = inf and no hazard (scales inf): the surrogate -r A.
    - at r = 1 the gradient is that of Reinforce times exp(-zeta_0), 0.2651 at the defaults; ``normalise`` divides by it.

    Confidence: verified.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS"})

    bound: float = 1.5
    shape_up: float = 1.5
    scale_up: float = 1.0
    shape_down: float = 2.0
    scale_down: float = 0.8
    normalise: bool = False

    def __post_init__(self) -> None:
        if min(self.bound, self.shape_up, self.scale_up, self.shape_down, self.scale_down) <= 0:
            raise ValueError(
                "HazardModulated takes a bound, shapes and scales above 0 (inf switches bound and scales off)"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).where(batch.mask_NS, 0)
        psi_NS = log_ratio_NS if math.isinf(self.bound) else self.bound * torch.tanh(log_ratio_NS / self.bound)
        weight_NS = (psi_NS - self._hazard(psi_NS.detach())).exp()
        if self.normalise:
            weight_NS = weight_NS * self._hazard(torch.zeros((), dtype=torch.float64)).exp().item()
        metrics = {"kl/old": k3_of(log_ratio_NS), "hazard/weight": weight_NS.detach()}
        return Terms((-weight_NS * batch.column("advantage_NS", self)).where(batch.mask_NS, 0), metrics)

    def _hazard(self, psi: Tensor) -> Tensor:
        up, down = softplus(psi) / self.scale_up, softplus(-psi) / self.scale_down
        return up**self.shape_up + down**self.shape_down
