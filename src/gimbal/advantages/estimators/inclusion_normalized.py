"""The group's mean and scale when only some of its rollouts were kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class InclusionNormalized(AbstractAdvantage):
    """GroupNormalized with each rollout weighted for similar ones that were cancelled (DUET, arXiv:2605.08441; Horvitz-Thompson
    weights, textbook).

    w_i = min(1 / inclusion_i, most),  m = sum_g w R / sum_g w,  s^2 = n / (n - ddof) sum_g w (R - m)^2 / sum_g w,

    A_i = (w_i / mean w) (R_i - m) / (s + eps), with n rollouts of the group and the mean of w over the batch: a group counts by how
    many it drew, not by how many are left. ``inclusion`` is the probability with which the sampler kept the rollout. The sums below
    are exact in expectation where it follows from the rollout itself, as Aborting's does; Pruning's depends on its whole group too.

    - all inclusions of the batch equal, or ``most`` = 1: GroupNormalized.
    - all rewards of a group equal, or a group of one: A = 0.

    Sums weighted by 1 / inclusion equal the sums over all rollouts in expectation; m, s and the mean of w are quotients of such sums,
    each with a bias of order one over the number of rollouts in it. So in small groups a bias against rarely kept rollouts remains:
    each is part of its own baseline, and the more so the larger its weight; a group of which fewer than two are left teaches nothing;
    and ``most`` cuts weights. Measured on Aborting with its defaults: the credit of a right rollout by quartile of length, relative to
    the shortest, is 1, .92, .82, .72 with up to 60 tokens after the marker (unweighted 1, .69, .47, .31), and 1, .76, .59, .32 with up
    to 120 (unweighted 1, .46, .22, .09).

    Confidence: abstract only; ours: everything except that survivors are weighted by their inverse probability.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})
    per_episode: ClassVar[bool] = True

    most: float = 10.0
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.most < 1 or self.eps < 0:
            raise ValueError(f"InclusionNormalized has most {self.most}, 1 or above, and eps {self.eps}, 0 or above")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        label_N = torch.unique(batch.column("group_N", self), return_inverse=True)[1]
        return_N = batch.return_N.double()
        weight_N = (1 / batch.column("inclusion", self).double()).clamp(max=self.most)
        count = int(label_N.max()) + 1 if len(label_N) else 0

        def total(value_N: Tensor) -> Tensor:
            return value_N.new_zeros(count).index_add_(0, label_N, value_N)[label_N]

        size_N, all_N = total(torch.ones_like(weight_N)), total(weight_N)
        gap_N = return_N - total(weight_N * return_N) / all_N
        square_N = total(weight_N * gap_N.square()) / all_N * size_N / (size_N - self.ddof).clamp(min=1)
        spread_N = square_N.sqrt() + self.eps
        advantage_N = (weight_N / weight_N.mean() * gap_N / spread_N).where((size_N > 1) & (spread_N > 0), 0)
        # The mean of equal rewards is that very reward but for rounding, and so must their advantage be 0.
        top_N = return_N.new_full((count,), -torch.inf).scatter_reduce(0, label_N, return_N, "amax")[label_N]
        low_N = return_N.new_full((count,), torch.inf).scatter_reduce(0, label_N, return_N, "amin")[label_N]
        return advantage_N.where(top_N > low_N, 0).float()[:, None] * batch.mask_NS
