"""Routes on a grid: which there are, and an exact score of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gimbal.records import Group, Task
from gimbal.rewards.base import AbstractReward

SIDE = 5
FREE, BLOCKED, START, GOAL = ".#SG"
LETTERS = "abcdefghijklmnopqrstuvwxy"  # of the squares, row by row
AROUND = [
    [at for at in range(SIDE**2) if abs(at // SIDE - one // SIDE) + abs(at % SIDE - one % SIDE) == 1]
    for one in range(SIDE**2)
]


def distances(grid: str) -> list[int]:
    """Steps from each square to the goal around the blocked ones; -1 where there is no way."""
    found, edge = {grid.index(GOAL): 0}, [grid.index(GOAL)]
    for at in edge:  # grows meanwhile
        for near in AROUND[at]:
            if grid[near] != BLOCKED and near not in found:
                found[near] = found[at] + 1
                edge.append(near)
    return [found.get(at, -1) for at in range(SIDE**2)]


def arrival(grid: str, squares: Sequence[int]) -> int:
    """After how many steps a route is at the goal for good; 0 where it never is, crosses a blocked square, or jumps."""
    at, goal = grid.index(START), grid.index(GOAL)
    for square in squares:
        if grid[square] == BLOCKED or (square != at and square not in AROUND[at]):
            return 0
        at = square
    return 1 + max((step for step, square in enumerate(squares, 1) if square != goal), default=0) if at == goal else 0


@dataclass(frozen=True, kw_only=True)
class RouteScore(AbstractReward):
    """The score of a route over a grid (GridRoutes), a letter for the square at each step: 0 where it enters a blocked square, goes
    further than to a neighbour in one step, or does not end at the goal; else d / t, the least steps d that lead there divided by the
    steps t after which it stays there.

    - a shortest route: 1.
    - one that waits or turns aside for as many steps as are needed: 1/2.
    """

    name: str = "route"

    def __call__(self, group: Group) -> list[float | None]:
        grid = group.task.prompt
        least = distances(grid)[grid.index(START)]
        return [self._of(grid, rollout.text, least) for rollout in group.rollouts]

    def _of(self, grid: str, text: str, least: int) -> float:
        squares = [LETTERS.find(letter) for letter in text]
        steps = arrival(grid, squares) if squares and min(squares) >= 0 else 0
        return least / steps if steps else 0.0

    def accepts(self, task: Task) -> None:
        grid = task.prompt
        marks = [grid.count(mark) for mark in (START, GOAL)]
        if (
            len(grid) != SIDE**2
            or set(grid) - {FREE, BLOCKED, START, GOAL}
            or marks != [1, 1]
            or distances(grid)[grid.index(START)] < 1
        ):
            raise ValueError(
                f"RouteScore reads grids of {SIDE} x {SIDE} with a start (S), a goal (G) and a way between them, row by row, and task "
                f"{task.id} is {grid!r:.40}: it belongs to tasks=GridRoutes()"
            )
