"""A pull of actions towards what the reference would do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import REFERENCE
from gimbal.objectives.base import AbstractObjective
from gimbal.records import Terms, TrainBatch

MEAN = "mean_NSD"  # of each number of an action


@dataclass(frozen=True, kw_only=True)
class ReferenceAction(AbstractObjective):
    """The squared distance of mean actions to the reference's, in the states that the policy visits (DAgger, arXiv:1011.0686; the
    distillation of InterMimic, arXiv:2502.20390).

    loss = coef sum_j (mean_j - reference_j)^2 over the A numbers of an action, both at the decision's own observation

    The reference is a model of its own (``reference``), as a teacher or several (``Teachers``). The drawn action does not enter, so
    decisions may be of any age.

    - ``coef`` = 0, or mean = reference: 0, with gradient 0.
    - unit deviations of both: 2 ``coef`` KL(policy || reference).
    - alone, with an objective that is 0: imitation on one's own states.

    Metrics: ``teacher/error``, the distance itself.

    Published: ``coef`` 1, which fades to .1 while PPO comes in. Ours: the policy alone acts; in the paper its teacher acts at first, in
    a share of the steps that falls to 0.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({MEAN, f"reference/{MEAN}"})

    coef: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.coef < math.inf:
            raise ValueError(
                f"ReferenceAction.coef is {self.coef}; it weighs the distance to the reference, 0 or above"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        apart_NSD = batch.column(MEAN, self) - batch.column(f"reference/{MEAN}", self)
        error_NS = apart_NSD.square().sum(-1).where(batch.mask_NS, 0)
        return Terms(self.coef * error_NS, {"teacher/error": error_NS.detach()})

    def effects(self) -> frozenset[str]:
        return frozenset({REFERENCE})
