"""The trees whose paths are the rows of a batch, for estimators that credit a decision by all that share it."""

from __future__ import annotations

import math
from collections import defaultdict

from gimbal.advantages.base import AbstractAdvantage
from gimbal.ops import last_row_of_episode
from gimbal.records import TrainBatch


class Forest:
    """The trees whose paths are the rows of a batch. An episode is one leaf, however many rows it has."""

    def __init__(self, batch: TrainBatch, reader: AbstractAdvantage) -> None:
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
