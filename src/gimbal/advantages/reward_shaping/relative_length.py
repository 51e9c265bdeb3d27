"""Short answers against long ones of the same group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractRewardShaping
from gimbal.advantages.components import added_at_end, components
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class RelativeLength(AbstractRewardShaping):
    """A bonus for the short and a penalty for the long answers of a group (length reward of Kimi k1.5, arXiv:2501.12599).

    lam_i = 1/2 - (L_i - min L) / (max L - min L), L counting the decisions of a rollout over its group; reward_i += weight lam_i where
    the reward ``right`` reaches ``threshold``, else weight min(lam_i, 0): a wrong answer gains nothing from being short.

    - ``weight`` = 0, one answer per group, or all of one length: the rewards as they are.
    - two lengths, all right: plus and minus half the weight.

    A right answer that is long enough may come out below its group's mean; ``length/penalised_right`` counts right answers that lose
    reward to their length. Filters run before it: ZeroVariance drops groups that differ only in length.

    Published without its weight, which is 0 while training warms up and constant afterwards: controllers.Delayed does that.

    Confidence: partial; the formula is widely implemented; ours: ``weight``.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})
    names_rewards: ClassVar[tuple[str, ...]] = ("right",)

    right: str = "right"
    threshold: float = 1.0
    weight: float = 0.5

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise ValueError(
                f"RelativeLength.weight is {self.weight}; below 0 it would pay for length: 0 (off) or above"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return added_at_end(batch, self.weight * self._bonus_N(batch), self)

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        bonus_N = self.weight * self._bonus_N(batch)
        right_N = components(batch, (self.right,), self)[self.right] >= self.threshold
        return {"length/penalised_right": float((bonus_N[right_N] < 0).double().mean()) if bool(right_N.any()) else 0.0}

    def _bonus_N(self, batch: TrainBatch) -> Float[Tensor, " N"]:
        right_N = components(batch, (self.right,), self)[self.right] >= self.threshold
        length_N = batch.mask_NS.sum(-1).double()
        label_N = torch.unique(batch.column("group_N", self), return_inverse=True)[1]
        counted_N = length_N > 0  # a row without decisions is no answer
        lowest = torch.full_like(length_N, torch.inf).scatter_reduce_(
            0, label_N, length_N.where(counted_N, torch.inf), "amin"
        )[label_N]
        highest = torch.zeros_like(length_N).scatter_reduce_(0, label_N, length_N, "amax")[label_N]
        spread_N = highest - lowest
        lam_N = (0.5 - (length_N - lowest) / spread_N).where(counted_N & (spread_N > 0), 0)
        return lam_N.where(right_N, lam_N.clamp(max=0))
