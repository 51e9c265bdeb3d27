"""Small sudokus: grids of 4 x 4 with some of their digits given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from gimbal.environments.base import AbstractGenerated
from gimbal.ops import philox
from gimbal.records import Task

SIDE, BOX = 4, 2
CELLS = SIDE * SIDE
EMPTY = "."
DIGITS = "1234"


def seen(cell: int) -> list[int]:
    """The cells that may not hold the digit of this one: those of its row, its column and its box."""
    row, column = divmod(cell, SIDE)
    return [
        other
        for other in range(CELLS)
        if other != cell
        and (
            other // SIDE == row
            or other % SIDE == column
            or (other // SIDE // BOX, other % SIDE // BOX) == (row // BOX, column // BOX)
        )
    ]


@cache
def grids() -> tuple[str, ...]:
    """All 288 filled grids, read row by row, in the order of their texts."""
    begun = [""]
    for cell in range(CELLS):
        before = [other for other in seen(cell) if other < cell]
        begun = [text + digit for text in begun for digit in DIGITS if all(text[other] != digit for other in before)]
    return tuple(begun)


@dataclass(frozen=True, kw_only=True)
class Sudoku(AbstractGenerated):
    """Grids of 4 x 4 to fill, so that each row, column and box has every digit once.

    ``size`` of them, in which ``clues`` cells are given: 16 characters, read row by row, such as "1..42..". A grid with few clues has
    several solutions, and any is right: the column ``answers`` has all (OneOf). Cells that could hold either of two digits then depend
    on one another, so a policy that fills several at once must have settled on one solution.
    """

    clues: int = 6
    size: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.clues < CELLS:
            raise ValueError(
                f"Sudoku.size is {self.size} and Sudoku.clues {self.clues}; they must be at least 1, and from 0 to {CELLS - 1}"
            )

    def task(self, index: int) -> Task:
        drawn = philox("sudoku", self.seed, index)
        grid = grids()[int(drawn.integers(len(grids())))]
        given = drawn.permutation(CELLS)[: self.clues].tolist()
        answers = tuple(one for one in grids() if all(one[cell] == grid[cell] for cell in given))
        return Task(
            id=f"sudoku-{self.seed}-{index}",
            prompt="".join(digit if cell in given else EMPTY for cell, digit in enumerate(grid)),
            answer=grid if len(answers) == 1 else None,
            source="sudoku",
            columns={"answers": answers},
        )
