"""Grids of 4 x 4: every answer is one, and all answers are there."""

import itertools

import pytest

from gimbal.environments.sudoku import CELLS, DIGITS, EMPTY, Sudoku, grids


def right(grid: str) -> bool:
    """By the rules of the game, written anew."""
    rows = [grid[4 * i : 4 * i + 4] for i in range(4)]
    boxes = [rows[i][j : j + 2] + rows[i + 1][j : j + 2] for i in (0, 2) for j in (0, 2)]
    return all(set(unit) == set(DIGITS) for unit in [*rows, *map("".join, zip(*rows, strict=True)), *boxes])


def test_there_are_288_grids_and_each_is_right():
    lines = ["".join(line) for line in itertools.permutations(DIGITS)]
    every = {"".join(four) for four in itertools.product(lines, repeat=4) if right("".join(four))}
    assert set(grids()) == every and len(grids()) == len(every) == 288


@pytest.mark.parametrize("clues", [0, 4, 6, 15])
def test_a_task_gives_its_clues_and_has_every_grid_that_keeps_them(clues):
    for index in range(10):
        task = Sudoku(clues=clues, seed=3)[index]
        assert len(task.prompt) == CELLS and CELLS - task.prompt.count(EMPTY) == clues
        kept = [g for g in grids() if all(c in (EMPTY, d) for c, d in zip(task.prompt, g, strict=True))]
        assert set(task.columns["answers"]) == set(kept) and kept
        assert task.answer == (kept[0] if len(kept) == 1 else None)


def test_tasks_depend_on_their_seed_and_their_place_alone():
    tasks = Sudoku(seed=1)
    assert tasks[5] == Sudoku(seed=1, size=6)[5] and len({tasks[i].prompt for i in range(20)}) == 20
    assert tasks[5].prompt != Sudoku(seed=2)[5].prompt
    with pytest.raises(IndexError):
        Sudoku(size=6)[6]
    with pytest.raises(ValueError, match=r"Sudoku\.clues"):
        Sudoku(clues=16)
