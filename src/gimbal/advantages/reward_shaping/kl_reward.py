"""A pull towards the reference policy, in the reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractRewardShaping
from gimbal.composition import REFERENCE
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class KLReward(AbstractRewardShaping):
    """Subtracts each decision's log-ratio to the reference from its reward (RLHF practice, arXiv:2203.02155; REINFORCE++,
    arXiv:2501.03262).

    r_t <- r_t - coef (proximal - reference)_t. Its expected policy gradient is that of the reverse KL. It applies before any
    baseline, so a group's mean and standard deviation include it.

    - ``coef`` = 0, or proximal = reference: the rewards as they are.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "proximal_NS", "reference_NS"})

    coef: float = 1e-3

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        penalty_NS = ops.k1(batch.column("proximal_NS", self), batch.column("reference_NS", self))
        return batch.column("reward_NS", self) - self.coef * penalty_NS

    def effects(self) -> frozenset[str]:
        return frozenset({REFERENCE})
