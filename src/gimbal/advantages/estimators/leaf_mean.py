"""The value of a decision in a tree of rollouts: the mean of the leaves below it."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.ops import last_row_of_episode
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
        forest = _Forest(batch, self)
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


class _Forest:
    """The trees whose paths are the rows of a batch. An episode is one leaf, however many rows it has."""

    def __init__(self, batch: TrainBatch, reader: LeafMean) -> None:
        self.parent, self.fork = (batch.column(name, reader).tolist() for name in ("parent_N", "fork_N"))
        self.group, self.episode = (batch.column(name, reader).tolist() for name in ("group_N", "episode_N"))
        last_N = last_row_of_episode(batch.mask_NS, batch.episode_N)
        self.earned: dict[int, float] = dict(zip(self.episode, batch.return_N.double()[last_N].tolist(), strict=True))
        self.end = batch.shape[1]
        self.children: dict[int, list[int]] = defaultdict(list)
        self.roots: dict[int, set[int]] = defaultdict(set)
        for row, parent in enumerate(self.parent):
            self.roots[self.group[row]].add(self.episode[row])
            if parent >= 0:
                self.children[parent].append(row)

    def mean(self, episodes: set[int]) -> float:
        """Of their returns; equal ones give that very return."""
        earned = [self.earned[episode] for episode in episodes]
        return earned[0] if min(earned) == max(earned) else math.fsum(earned) / len(earned)

    def through(self, row: int, place: int) -> set[int]:
        """Episodes whose path holds the decision at this place of this row."""
        found = {self.episode[row]}
        for child in self.children[row]:
            if self.fork[child] > place:
                found |= self.through(child, place)
        return found

    def pieces(self, row: int) -> list[tuple[int, int]]:
        """The row's own decisions, cut wherever another path leaves it."""
        start, cuts = self.fork[row] if self.parent[row] >= 0 else 0, set[int]()
        below = [(child, self.end) for child in self.children[row]]
        while below:
            child, shared = below.pop()
            # A path leaves this row where the earliest of its forks is; its other forks are no cuts here.
            shared = min(shared, self.fork[child])
            cuts.add(shared)
            below += [(other, shared) for other in self.children[child]]
        inside = sorted(cut for cut in cuts if start < cut < self.end)
        return list(zip([start, *inside], [*inside, self.end], strict=True))

    def value_before(self, row: int, root: float) -> float:
        """Of the piece that the row split off; of the root where there is none."""
        if self.parent[row] < 0 or self.fork[row] == 0:
            return root
        owner, place = self.parent[row], self.fork[row] - 1
        while self.parent[owner] >= 0 and place < self.fork[owner]:
            owner = self.parent[owner]
        return self.mean(self.through(owner, place))
