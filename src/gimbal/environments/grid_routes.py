"""Routes to a goal on small grids with obstacles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gimbal.environments.base import AbstractGenerated
from gimbal.ops import philox
from gimbal.records import Task
from gimbal.rewards.route_score import AROUND, BLOCKED, FREE, GOAL, LETTERS, SIDE, START, distances

STEPS = 8
MASK = "<mask>"  # of gimbal-routes


def shortest(grid: str, drawn: np.random.Generator) -> list[int]:
    """The squares of a shortest route at steps 1 to STEPS, each step drawn among those that lead on; it stays at the goal."""
    far, at, found = distances(grid), grid.index(START), list[int]()
    for _ in range(STEPS):
        onwards = [near for near in AROUND[at] if far[at] and far[near] == far[at] - 1]
        at = onwards[int(drawn.integers(len(onwards)))] if onwards else at
        found.append(at)
    return found


@dataclass(frozen=True, kw_only=True)
class GridRoutes(AbstractGenerated):
    """Grids of 5 x 5 to cross from a start (S) to a goal (G), at least 4 and at most 8 steps away, around ``blocked`` squares (#).

    The prompt is the grid, row by row. A route is 8 letters, a to y, row by row: the square at each step. It moves to a neighbour,
    not diagonally, or stays. Most grids have several shortest routes, between which a policy that writes many letters at once
    must settle. RouteScore scores them. The column ``arrival`` is a scaffold (MaskedSampling): a route whose last square is the goal.
    """

    blocked: int = 6
    size: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.blocked <= 12:
            raise ValueError(
                f"GridRoutes.size is {self.size} and GridRoutes.blocked {self.blocked}; they must be at least 1, and from 0 to 12"
            )

    def task(self, index: int) -> Task:
        drawn = philox("routes", self.seed, index)
        while True:
            place = drawn.permutation(SIDE**2)[: self.blocked + 2].tolist()
            marks = dict(zip(place, [START, GOAL, *BLOCKED * self.blocked], strict=True))
            grid = "".join(marks.get(at, FREE) for at in range(SIDE**2))
            if 4 <= distances(grid)[place[0]] <= STEPS:
                break
        arrival = MASK * (STEPS - 1) + LETTERS[place[1]]
        return Task(id=f"route-{self.seed}-{index}", prompt=grid, source="routes", columns={"arrival": arrival})
