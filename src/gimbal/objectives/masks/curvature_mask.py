"""Decisions that would move the policy or the objective too far by themselves are left out, before the update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.composition import AbstractRemembering, Advice, Composition, Refusal, State, Verdict
from gimbal.objectives.base import AbstractMask
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class CurvatureMask(AbstractMask, AbstractRemembering):
    """Excludes decisions whose own step is predicted (to second order) to move the last layer too far (CAPO, arXiv:2510.00819).

    With logits W h, v = onehot - pi, G the direction in which the run's optimiser (AdamW, with the moments it has) would move W given
    only this decision's gradient A v h^T, and u = G h:  policy = (alpha v.u)^2 / 2,  curvature = A ((v.u)^2 - u^T (diag pi - pi pi^T)
    u), objective = alpha A v.u + alpha^2 curvature / 2.  keep = policy < policy_shift and |objective| < objective_shift; ``one_sided``
    also drops steps that would lower the objective. The learner finds v.u (``step_slope_NS``) and the quadratic form, which is the
    variance of u under pi (``step_variance_NS``), from the 32 likeliest tokens.

    - both shifts inf (and not ``one_sided``): all are kept.
    - ``learning_rate`` = 0, or A = 0: all are kept.

    ``learning_rate`` is used for the first step and should be the run's; later steps use the previous step's rate. With AdamW a shift
    hardly depends on the size of the advantage but grows with the square of the learning rate and with the decision's uncertainty, so
    thresholds are specific to a learning rate and a model. Published: ``policy_shift`` 1e-4 and ``objective_shift`` 1e-2 for GRPO, 1e-3
    and 5e-4 for Dr. GRPO, at a learning rate of 1.5e-5, where under 8 % of the decisions are dropped (``mask/CurvatureMask`` is the
    share kept). Masks of whole rollouts and batches are not done here.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", "step_slope_NS", "step_variance_NS"})

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
        # Without an advantage a decision makes no gradient; what the moments would do is not its own step.
        return (keep_NS | (batch.column("advantage_NS", self) == 0)) & batch.mask_NS

    def shifts(self, batch: TrainBatch) -> tuple[Float[Tensor, "N S"], Float[Tensor, "N S"]]:
        """How far a decision's own step would move the policy, and the objective."""
        names = ("advantage_NS", "step_slope_NS", "step_variance_NS")
        advantage_NS, slope_NS, variance_NS = (batch.column(name, self).double() for name in names)
        alpha = self.learning_rate
        objective_NS = alpha * slope_NS + alpha**2 * (slope_NS.square() - variance_NS) / 2
        return (alpha * slope_NS).square() / 2, advantage_NS * objective_NS

    def init(self) -> State:
        return {"learning_rate": self.learning_rate}

    def update(self, state: State, metrics: Mapping[str, float]) -> State:
        return {"learning_rate": metrics["lr"]}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        optimization = whole.run.learns.optimization
        if optimization.optimizer != "adamw":
            yield Refusal(
                f"CurvatureMask predicts steps of AdamW, but optimization.optimizer is {optimization.optimizer}: set optimizer=adamw"
            )
        if self.learning_rate != optimization.learning_rate:
            yield Advice(
                "CurvatureMask.learning_rate differs from optimization.learning_rate, so it predicts other shifts"
            )
