"""A return paid in equal parts along the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractRewardShaping
from gimbal.advantages.estimators.gae import GAE, ReturnToGo
from gimbal.advantages.estimators.turn_gae import TurnGAE
from gimbal.composition import Advice, Composition, Verdict
from gimbal.records import TrainBatch


@dataclass(frozen=True)
class SpreadReturn(AbstractRewardShaping):
    """Gives each decision an equal part of its rollout's return (SPO on control, arXiv:2401.04056).

    r_t = sum_t r_t / length. The return stays as it is, so estimators that use the return see no change; those that use steps
    (GAE, ReturnToGo) get their reward early, and the remaining reward falls along the way regardless of the actions.

    - one decision: the reward as it is.

    Confidence: partial; ours: that the length counts the rollout's own decisions.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS"})

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return_N = batch.column("reward_NS", self).sum(-1)
        return (return_N / batch.mask_NS.sum(-1).clamp(min=1))[:, None] * batch.mask_NS

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(GAE, TurnGAE, ReturnToGo):
            yield Advice("SpreadReturn changes nothing for an estimator that sums a rollout's rewards")
