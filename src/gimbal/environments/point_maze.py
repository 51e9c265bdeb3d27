"""A point in a maze, of whose ways data show parts alone."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float

WALLS = (  # of cells, the first row on top; S: start, G: goal
    "..#.G",
    "#.#.#",
    "S.#..",
    ".###.",
    ".....",
)
REACH = 0.2  # the longest step in either direction, in cells
Cell = tuple[int, int]


class PointMaze(gymnasium.Env):
    """A point moves through cells of a maze by at most ``REACH`` of a cell a step in either direction; a wall stops the direction that
    it stands in. Reaching the goal's cell pays 1 and ends the episode; nothing else pays. It is cut off after 100 steps.

    Observed: the place, (x, y) from -1 to 1. ``begin`` (an option of ``reset``) is the cell where it starts, else S.
    """

    longest: ClassVar[int] = 100

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-REACH, REACH, (2,), np.float32)
        self.place, self.steps = np.zeros(2), 0  # (row, column), in cells

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        cell = (options or {}).get("begin", START)
        self.place, self.steps = np.array(cell) + 0.5 + self.np_random.uniform(-0.3, 0.3, 2), 0
        return self.seen, {}

    def step(self, action: Float[np.ndarray, " 2"]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        for axis, by in enumerate(np.clip(action, -REACH, REACH)):
            moved = self.place.copy()
            moved[axis] += by
            if cell_of(moved) in FREE:
                self.place = moved
        self.steps += 1
        reached = cell_of(self.place) == GOAL
        return self.seen, float(reached), reached, self.steps >= self.longest and not reached, {}

    @property
    def seen(self) -> Float[np.ndarray, " 2"]:
        return (2 * self.place / len(WALLS) - 1).astype(np.float32)


def cell_of(place: Float[np.ndarray, " 2"]) -> Cell:
    return int(np.floor(place[0])), int(np.floor(place[1]))


def _cells(marks: str) -> list[Cell]:
    return [(row, column) for row, line in enumerate(WALLS) for column, mark in enumerate(line) if mark in marks]


FREE = frozenset(_cells(".SG"))
(START,), (GOAL,) = _cells("S"), _cells("G")


def distances(to: Cell) -> dict[Cell, int]:
    """Of each cell from this one, in cells along the ways of the maze."""
    found, edge = {to: 0}, deque([to])
    while edge:
        row, column = edge.popleft()
        for cell in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if cell in FREE and cell not in found:
                found[cell] = found[row, column] + 1
                edge.append(cell)
    return found


def towards(place: Float[np.ndarray, " 2"], away: dict[Cell, int]) -> Float[np.ndarray, " 2"]:
    """The step from a place to the middle of the next cell on the way, by the distances from where it leads."""
    row, column = cell_of(place)
    beside = [
        cell for cell in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)) if cell in away
    ]
    nearest = min([*beside, (row, column)], key=lambda cell: away[cell])
    return np.clip(np.array(nearest) + 0.5 - place, -REACH, REACH)
