"""The value of a decision in a tree of rollouts, normalised over the decisions at the same place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.forest import Forest
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class NodeNormalized(AbstractAdvantage):
    """The mean score of the episodes that share a decision, normalised over the group's decisions at that place (BranchGRPO,
    arXiv:2509.06040).

    A_s = (V(n) - mean_s V) / (std_s V + eps), with n the decision at place s of a row, V(n) the mean return of the episodes whose
    paths contain n, and mean_s and std_s (ddof 1) over the decisions of the group at place s, each once: a decision that several
    episodes share counts in the row that sampled it, and the mask excludes it elsewhere.

    - no splits, and all rows of one length: GroupNormalized.
    - all returns of a group equal, a group of one, or one decision at that place: A = 0.

    ``eps`` 1e-6; the published code adds 1e-8, and gives 0 where the deviation is below 1e-6.

    Confidence: verified; ours: trees of any shape, and an episode of several rows as one leaf.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N", "episode_N", "parent_N", "fork_N"})

    eps: float = 1e-6

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        forest, mask_NS = Forest(batch, self), batch.mask_NS
        value_NS = torch.zeros(batch.shape, dtype=torch.float64, device=mask_NS.device)
        for row in range(batch.shape[0]):
            for first, end in forest.pieces(row):
                value_NS[row, first:end] = forest.mean(forest.through(row, first))
        group_N = batch.column("group_N", self)
        columns = zip(value_NS.unbind(1), mask_NS.unbind(1), strict=True)
        return torch.stack(
            [ops.group_normalised(value_N, group_N, eps=self.eps, counted_N=own_N) for value_N, own_N in columns], 1
        ).float()
