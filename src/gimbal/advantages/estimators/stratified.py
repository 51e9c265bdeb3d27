"""Rollouts are compared within their own kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class Stratified(AbstractAdvantage):
    """Normalises within strata, so that a rollout is not rewarded for its stratum, such as one of many searches (Stratified GRPO,
    arXiv:2510.06214).

    A = alpha A_stratum + (1 - alpha) A_group, each (R - mean R) / (std R + eps): over the rollouts of the group in the same stratum,
    and over the whole group. The stratum of a rollout is the number of its turns, with or without counted decisions (published: of its
    searches), or the value of the fact that ``strata`` names ("score/NAME" of a reward, with weight 0 if needed).

    - ``alpha`` = 0, or one stratum only: GroupNormalized.
    - every stratum of one rollout: (1 - alpha) times GroupNormalized.
    - ``alpha`` = 1: differences between strata are invisible, and so never learned.
    - all rewards of a group equal, or a group of one: A = 0.

    Confidence: partial; the estimator is from the paper; ours: ``alpha`` 0.8 and strata by facts other than searches.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})

    strata: str = "turns"
    alpha: float = 0.8
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"Stratified.alpha is {self.alpha}; it blends two estimates, 0 to 1")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return_N, group_N = batch.return_N, batch.column("group_N", self)
        label_N = torch.unique(torch.stack([group_N.double(), self._stratum_N(batch)]), dim=1, return_inverse=True)[1]
        inside_N, across_N = (
            ops.group_normalised(return_N, label, ddof=self.ddof, eps=self.eps) for label in (label_N, group_N)
        )
        return (self.alpha * inside_N + (1 - self.alpha) * across_N)[:, None] * batch.mask_NS

    def _stratum_N(self, batch: TrainBatch) -> Float[Tensor, " N"] | Int[Tensor, " N"]:
        if self.strata == "turns":
            return batch.turns_NS.amax(-1).double()  # 0 in the padding
        return batch.column(self.strata, self).double()
