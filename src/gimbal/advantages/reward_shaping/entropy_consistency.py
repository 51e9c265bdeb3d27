"""Answers to one question in several wordings should hold as much information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractRewardShaping
from gimbal.advantages.components import added_at_end
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class EntropyConsistency(AbstractRewardShaping):
    """Rewards answers that are informative, and equally so for all wordings of a question (information-consistent GRPO,
    arXiv:2512.12858).

    R + information (H - min H) / (max H - min H) - stability |H - mean_g H| / gap, added on the last decision of a row; H is the mean
    entropy of a rollout's decisions, min and max are over the batch, and ``gap`` 0 is their difference. g is the set of rollouts
    with one value of the column ``over``: the group, or "score/family" of an Expected that numbers questions across wordings.

    - ``information`` = ``stability`` = 0: R.
    - a single rollout, or equal H over g: no stability term.
    - H equal across the batch: R.

    Equal entropy does not mean equal content.

    Confidence: partial; ours: credit per rollout instead of per group (which centring cancels), H of the policy's distributions,
    and both weights of 0.5.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "entropy_NS", "group_N"})

    information: float = 0.5
    stability: float = 0.5
    gap: float = 0.0
    over: str = "group_N"

    def __post_init__(self) -> None:
        if self.gap < 0:
            raise ValueError(
                f"EntropyConsistency.gap is {self.gap}; it must be a difference of entropies, or 0 for the batch's"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        label_N = batch.column("group_N", self)
        if self.over != "group_N":
            label_N = batch.column(self.over, self).round().long()
        there_N = batch.mask_NS.any(-1)
        entropy_N = ops.sequence_mean(batch.column("entropy_NS", self).detach(), batch.mask_NS).double()
        # What has no decisions has no entropy: it takes part in nothing.
        found = entropy_N[there_N] if bool(there_N.any()) else entropy_N.new_zeros(1)
        least, span = found.min(), found.max() - found.min()
        distance_N = ops.group_normalised(entropy_N, label_N, scale="none", counted_N=there_N).abs()
        bonus_N = self.information * _over(entropy_N - least, span)
        bonus_N = bonus_N - self.stability * _over(distance_N, self.gap if self.gap > 0 else span)
        return added_at_end(batch, bonus_N, self)


def _over(x_N: Float[Tensor, " N"], scale: Tensor | float) -> Float[Tensor, " N"]:
    scale = torch.as_tensor(scale, dtype=x_N.dtype, device=x_N.device)
    return (x_N / scale).where(scale > 0, 0)
