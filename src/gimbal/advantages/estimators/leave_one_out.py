"""The mean of the other rollouts as baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True)
class LeaveOneOut(AbstractAdvantage):
    """The mean of the group's other rollouts as an unbiased baseline (RLOO, arXiv:2402.14740; use with SequenceSum).

    A_i = R_i - 1/(G-1) sum_{j != i} R_j.

    - G/(G - 1) times GroupCentered.
    - all rewards of a group equal, or a group of one: A = 0.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})
    per_episode: ClassVar[bool] = True

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return_N = batch.return_N
        return (return_N - ops.group_others_mean(return_N, batch.column("group_N", self)))[:, None] * batch.mask_NS
