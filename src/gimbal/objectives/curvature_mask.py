"""Decisions that would move the policy or the objective too far by themselves are left out, before the update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.objectives.base import AbstractMask
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class CurvatureMask(AbstractMask):
    """What one decision's own step would do to the last layer is predicted to second order (CAPO, arXiv:2510.00819).

    With logits = W h, v = onehot - pi and the step dW = alpha A v h^T:  s = A |h|^2 |v|^2 is what the decision's log-probability
    gains per alpha,  policy = (alpha s)^2 / 2,  curvature = A (s^2 - (A |h|^2)^2 v^T (diag pi - pi pi^T) v),
    objective = alpha A s + alpha^2 curvature / 2.  keep = policy < policy_shift and |objective| < objective_shift; ``one_sided`` also
    drops steps that would lower the objective. It needs no logits: |v|^2 and v^T (...) v follow from the sums of pi^2 and pi^3.

    - both shifts inf (and not ``one_sided``): all are kept.
    - ``learning_rate`` = 0, or A = 0: all are kept.

    ``learning_rate`` should be the run's; MovingAverage(signal="lr", decay=0) moves it along a schedule. Logits are those of
    temperature 1.

    Published: ``policy_shift`` 1e-4 and ``objective_shift`` 1e-2 for GRPO, 1e-3 and 5e-4 for Dr. GRPO, ``learning_rate`` 1.5e-5; and
    also Adam's direction in place of the gradient's, which is not done here, nor are masks of whole rollouts and batches.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"current_NS", "advantage_NS", "hidden_NSH", "power2_NS", "power3_NS"})

    learning_rate: float = 1e-3
    policy_shift: float = 1e-4
    objective_shift: float = 1e-2
    one_sided: bool = False

    def __post_init__(self) -> None:
        if not (self.learning_rate >= 0 and self.policy_shift > 0 and self.objective_shift > 0):
            raise ValueError(
                f"CurvatureMask has learning_rate {self.learning_rate}, 0 or above, and keeps shifts below {self.policy_shift} and "
                f"{self.objective_shift}, both above 0 (inf is off)"
            )

    def __call__(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        policy_NS, objective_NS = self.shifts(batch)
        keep_NS = (policy_NS < self.policy_shift) & (objective_NS.abs() < self.objective_shift)
        if self.one_sided:
            keep_NS &= objective_NS >= 0
        return keep_NS & batch.mask_NS

    def shifts(self, batch: TrainBatch) -> tuple[Float[Tensor, "N S"], Float[Tensor, "N S"]]:
        """How far a decision's own step would move the policy, and the objective."""
        names = ("advantage_NS", "current_NS", "power2_NS", "power3_NS")
        advantage_NS, current_NS, power2_NS, power3_NS = (batch.column(name, self).double() for name in names)
        p_NS = current_NS.clamp(max=0).exp()
        square_NS = batch.column("hidden_NSH", self).double().square().sum(-1)
        # |onehot - pi|^2, and the variance of (onehot - pi) under pi; both are 0 or above but for rounding.
        length_NS = (1 - 2 * p_NS + power2_NS).clamp(min=0)
        variance_NS = (p_NS - 2 * p_NS.square() + power3_NS - (p_NS - power2_NS).square()).clamp(min=0)
        slope_NS = advantage_NS * square_NS * length_NS
        curvature_NS = advantage_NS * (slope_NS.square() - (advantage_NS * square_NS).square() * variance_NS)
        alpha = self.learning_rate
        return (alpha * slope_NS).square() / 2, alpha * advantage_NS * slope_NS + alpha**2 * curvature_NS / 2
