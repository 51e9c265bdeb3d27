"""A penalty on the variance of the ratio instead of a clip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import Advice, Composition, Verdict
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import k3_of
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class RatioVariance(AbstractObjective):
    """The surrogate with a penalty on the variance of the ratio, instead of a clip (R2VPO, arXiv:2601.03320).

    loss = -r A + strength (r - centre)^2, gradient through r in both; centre 1 (E r = 1 under the anchor), or with ``centred`` the
    minibatch's mean ratio, held constant. ``strength`` is the multiplier of the constraint Var r <= delta, which
    Lagrangian(signal="ratio/variance", limit=delta, low=0) moves. The pull on logprob is r (A - 2 strength (r - 1)), at rest at
    r = 1 + A / (2 strength).

    - ``strength`` = 0: the unclipped surrogate, ClippedRatio with both clips inf.
    - r = 1: the gradient of Reinforce; the penalty has none.
    - fixed ``strength``: a penalty on the chi-square divergence. To second order KL is half the variance.

    With the anchor Behavior, r is the total ratio, as replay needs. Log-ratios are cut at ±10.

    Confidence: abstract-only; ours: the Lagrangian form, its limits and steps (delta .01 to .04, up to .1 with replay).
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS", "current_NS"})

    strength: float = 1.0
    centred: bool = False

    def __post_init__(self) -> None:
        if self.strength < 0:
            raise ValueError(f"RatioVariance.strength is {self.strength}; it must be 0 or above")

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        ratio_NS = self._log_ratio(batch.column("current_NS", self), batch).exp()
        mean = ops.masked_mean(ratio_NS, batch.mask_NS) if self.centred else torch.ones((), device=ratio_NS.device)
        return {"ratio/centre": mean.expand(batch.shape[0])}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "ratio/centre")
        log_ratio_NS = self._log_ratio(logprob_NS, batch)
        ratio_NS = log_ratio_NS.exp()
        square_NS = (ratio_NS - batch.facts["ratio/centre"][:, None]).square().where(batch.mask_NS, 0)
        loss_NS = self.strength * square_NS - ratio_NS * batch.column("advantage_NS", self)
        return Terms(loss_NS, {"ratio/variance": square_NS.detach(), "kl/old": k3_of(log_ratio_NS)})

    def _log_ratio(self, logprob_NS: Tensor, batch: TrainBatch) -> Tensor:
        return ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).clamp(-10, 10).where(batch.mask_NS, 0)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not self.strength and whole.updates > 1 and not whole.run.learns.controllers:
            yield Advice("RatioVariance of strength 0 with several updates per batch: nothing bounds the ratio")
