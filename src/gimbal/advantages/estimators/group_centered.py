"""The group's mean as baseline, no scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True)
class GroupCentered(AbstractAdvantage):
    """GRPO without the division by the standard deviation (Dr. GRPO, arXiv:2503.20783; use with ConstantMean).

    A_i = R_i - mean_g R.

    - all rewards of a group equal, or a group of one: A = 0.
    - (G - 1)/G times LeaveOneOut.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})
    per_episode: ClassVar[bool] = True

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return_N = batch.return_N
        return (return_N - ops.group_mean(return_N, batch.column("group_N", self)))[:, None] * batch.mask_NS
