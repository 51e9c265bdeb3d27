"""A pull towards two anchors at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import REFERENCE
from gimbal.objectives.base import AbstractObjective
from gimbal.objectives.regularisers.kl_penalty import ESTIMATORS
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class ConvexKL(AbstractObjective):
    """A KL penalty to a convex mix of two anchors, the reference and the policy before the update (ReMix, arXiv:2507.06892).

    loss = coef (mix k(logprob, reference) + (1 - mix) k(logprob, proximal)), with the estimators of KLPenalty.

    - ``mix`` = 1: KLPenalty.
    - ``mix`` = 0: a proximal penalty alone, with no pull to the reference.
    - logprob = reference = proximal: value 0; gradient 0 for k2 and k3.

    Published: ``mix`` falls from 1 to 0.5 in steps of 0.1 (controller Staircase). After the first phase the reference is renewed (the
    run's ``reference_resets``).

    Confidence: verified (secondary); ours: ``coef`` and the estimator.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference_NS", "proximal_NS"})

    coef: float = 0.04
    mix: float = 1.0
    estimator: Literal["k1", "k2", "k3"] = "k3"

    def __post_init__(self) -> None:
        if not 0 <= self.mix <= 1:
            raise ValueError(f"ConvexKL.mix is {self.mix}; it is the reference's share, in [0, 1]")

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        reference_NS, proximal_NS = batch.column("reference_NS", self), batch.column("proximal_NS", self)
        kept_NS, estimate = logprob_NS.where(batch.mask_NS, 0), ESTIMATORS[self.estimator]
        loss_NS = self.mix * estimate(kept_NS, reference_NS) + (1 - self.mix) * estimate(kept_NS, proximal_NS)
        return Terms(self.coef * loss_NS, {"kl/ref": ops.k3(kept_NS.detach(), reference_NS)})

    def effects(self) -> frozenset[str]:
        return frozenset({REFERENCE})
