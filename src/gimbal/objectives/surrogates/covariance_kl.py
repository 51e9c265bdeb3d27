"""A rein on the decisions that drain entropy fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import ENTROPY
from gimbal.objectives.base import UPDATE, AbstractObjective, check_share
from gimbal.objectives.masks.covariance_mask import covariance, share_of
from gimbal.objectives.surrogates.clipped_ratio import k3_of
from gimbal.ops.lots import first_by, lots
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class CovarianceKL(AbstractObjective):
    """The surrogate without a clip, and a KL on the decisions with the highest covariance with the advantage (KL-Cov,
    arXiv:2505.22617).

    loss = -r A + coef h |logprob - proximal|,  r = exp(logprob - proximal); h = 1 on the floor(share x decisions), at least one, with
    the largest (current - mean current) (A - mean A) in the minibatch, else 0.

    - ``share`` = 0, or ``coef`` = 0: the unclipped surrogate, ClippedRatio with both bounds inf.
    - logprob = proximal: no pull, since |x| has no gradient at 0; a first update on fresh data is that of Reinforce.
    - ``share`` = 1: every decision is penalised.

    Published: ``share`` 2e-3 (7B) or 2e-4 (32B), ``coef`` 1 (0.1 in later code). Ours: the meaning of ``share`` 0.

    Confidence: verified.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS", "current_NS", "behavior_NS"})

    share: float = 2e-3
    coef: float = 1.0

    def __post_init__(self) -> None:
        check_share(self, self.share)

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        lot_NS = lots(batch.column("behavior_NS", self), batch.mask_NS, "covariance kl")
        covariance_NS = covariance(batch, self)
        held_NS = first_by(batch.mask_NS, share_of(batch, self.share), -covariance_NS, lot_NS)
        return {"covariance_NS": covariance_NS, "held_NS": held_NS.double()}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "held_NS")
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).where(batch.mask_NS, 0)
        held_NS = batch.column("held_NS", self).to(log_ratio_NS.dtype)
        loss_NS = self.coef * held_NS * log_ratio_NS.abs() - log_ratio_NS.exp() * batch.column("advantage_NS", self)
        metrics = {"covariance": batch.column("covariance_NS", self), "covariance/held": held_NS}
        return Terms(loss_NS, metrics | {"kl/old": k3_of(log_ratio_NS)})

    def effects(self) -> frozenset[str]:
        return frozenset({ENTROPY})
