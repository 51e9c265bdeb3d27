"""Each seat is compared with other rollouts of that seat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class SeatCentered(AbstractAdvantage):
    """The return minus the mean of the same role in the group (GRPO's baseline, arXiv:2402.03300, per role): a seat gets no credit for
    its deal.

    A_i = R_i - mean over rollouts j of i's group and role of R_j; with ``scale`` divided by (their standard deviation + 1e-6).

    - one role: GroupCentered; with ``scale``: GroupNormalized.
    - all rewards of a role equal, or one rollout in it: A = 0.
    - in a group of a zero-sum game GroupCentered subtracts nothing, since the seats' returns cancel.

    Confidence: verified; ours: the role as stratum.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N", "role_N"})
    per_episode: ClassVar[bool] = True

    scale: bool = False

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return_N, group_N, role_N = batch.return_N, batch.column("group_N", self), batch.column("role_N", self)
        label_N = torch.unique(torch.stack([group_N, role_N]), dim=1, return_inverse=True)[1]
        if self.scale:
            return ops.group_normalised(return_N, label_N)[:, None] * batch.mask_NS
        return (return_N - ops.group_mean(return_N, label_N))[:, None] * batch.mask_NS
