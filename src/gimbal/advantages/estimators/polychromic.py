"""Sets of rollouts are scored for reward and variety together."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch

MOST_SETS = 100_000


@dataclass(frozen=True, kw_only=True)
class Polychromic(AbstractAdvantage):
    """Scores sets of rollouts: a set earns reward only if its members also differ (polychromic objectives, arXiv:2509.25424).

    f(set) = mean R over the set * distinct kinds in it / n; A_i = mean of f over the sets of n rollouts of the group that contain i,
    minus the mean of f over all of them. A rollout's kind is the value of the fact that ``kinds`` names ("score/kind" of AnswerKind);
    "" makes each its own kind. Rewards should lie in [0, 1].

    - each its own kind, ``size`` = 1: GroupCentered.
    - each its own kind: (1/n - 1/G) times LeaveOneOut.
    - n rollouts of one kind: f = mean R / n. No reward in a set: f = 0, however varied it is.
    - a group of ``size`` or fewer is one set: A = 0. Equal rewards give 0 only if the kinds are balanced too.

    Published: ``size`` 4 of 8 rollouts that branch off several states of a rollout, 4 sampled sets.

    Confidence: partial; the set objective is from the paper; ours: rollouts branch at the prompt only, and all sets count instead of a
    sample.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})
    per_episode: ClassVar[bool] = True

    size: int = 4
    kinds: str = ""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"Polychromic.size is {self.size}; a set holds at least one rollout")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return_N, group_N = batch.return_N, batch.column("group_N", self)
        kind_N = batch.column(self.kinds, self) if self.kinds else torch.arange(len(return_N), device=return_N.device)
        advantage_N = torch.zeros_like(return_N, dtype=torch.float64)
        for label in torch.unique(group_N):
            member_N = group_N == label
            kind_G = torch.unique(kind_N[member_N], return_inverse=True)[1]
            advantage_N[member_N] = self._of(return_N[member_N].double(), kind_G)
        return advantage_N.to(return_N.dtype)[:, None] * batch.mask_NS

    def _of(self, return_G: Float[Tensor, " G"], kind_G: Tensor) -> Float[Tensor, " G"]:
        count = len(return_G)
        size = min(self.size, count)
        if math.comb(count, size) > MOST_SETS:
            raise ValueError(
                f"Polychromic forms all sets of {size} of {count} rollouts, more than {MOST_SETS}: lower size or num_generations"
            )
        sets_CM = torch.tensor(list(itertools.combinations(range(count), size)), device=return_G.device)
        kinds_CK = torch.zeros(len(sets_CM), count, device=return_G.device, dtype=torch.float64)
        kinds_CK.scatter_(1, kind_G[sets_CM], 1.0)
        value_C = return_G[sets_CM].mean(-1) * kinds_CK.sum(-1) / size
        ahead_C = value_C - value_C.mean()
        total_G = torch.zeros_like(return_G).index_add_(0, sets_CM.flatten(), ahead_C.repeat_interleave(size))
        return total_G / (len(sets_CM) * size / count)
