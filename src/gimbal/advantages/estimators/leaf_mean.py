"""The value of a decision in a tree of rollouts: the mean of the leaves below it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.forest import Forest
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class LeafMean(AbstractAdvantage):
    """The mean score of the episodes that share a decision, minus a baseline (TreeRL, arXiv:2506.11902).

    A_t = V(n) - V(root), with n the segment of a row between two splits that contains t, V(n) the mean return of the episodes whose
    paths contain n, each once, and V(root) the mean over the whole group. ``baseline`` "parent" subtracts the value of the segment
    before n instead (V(root) for the first), and "both" adds the two advantages. ``damped`` divides by the square root of the number of
    episodes below n, so that a segment shared by many does not outweigh the rest.

    A decision that several episodes share counts once, in the row that sampled it; the mask excludes it elsewhere.

    - no splits: GroupCentered; with "both" twice that.
    - all returns of a group equal, or a group of one: A = 0.
    - "parent", along a path: the advantages of its segments add up to R - V(root).

    TreeRL is "both" and ``damped``.

    Confidence: verified for V, both baselines and the damping; ours: trees of any shape, and an episode of several rows as one
    leaf.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N", "episode_N", "parent_N", "fork_N"})

    baseline: Literal["root", "parent", "both"] = "root"
    damped: bool = False

    def __post_init__(self) -> None:
        if self.baseline not in ("root", "parent", "both"):
            raise ValueError(f"LeafMean.baseline is {self.baseline!r}; choose root, parent or both")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        forest = Forest(batch, self)
        value_NS = torch.zeros(batch.shape, dtype=torch.float64, device=batch.mask_NS.device)
        for row in range(batch.shape[0]):
            root = forest.mean(forest.roots[forest.group[row]])
            before = forest.value_before(row, root)
            for first, end in forest.pieces(row):
                below = forest.through(row, first)
                value = forest.mean(below)
                apart = {"root": value - root, "parent": value - before, "both": 2 * value - root - before}
                value_NS[row, first:end] = apart[self.baseline] / (math.sqrt(len(below)) if self.damped else 1.0)
                before = value
        return value_NS.float() * batch.mask_NS
