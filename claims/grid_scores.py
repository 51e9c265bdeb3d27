"""Scores, differences and steps of grid.py's arms in their cells, from its record."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import grid
from grid import Cell

Runs = Sequence[Mapping[str, Any]]


def mean(runs: Runs, arm: str, cell: Cell) -> float:
    return statistics.fmean(scores(runs, arm, cell))


def scores(runs: Runs, arm: str, cell: Cell) -> list[float]:
    """Of the seeds that are recorded."""
    if arm == "tuned":
        best = grid.best(runs, cell)
        return [] if best is None else [run["score"] for run in grid.of(runs, arm, best, range(5))]
    return [run["score"] for run in grid.of(runs, arm, cell, range(5))]


def collapsed(runs: Runs, arm: str, cell: Cell) -> int:
    before = grid.start(runs, cell)
    return sum(score < before for score in scores(runs, arm, cell))


def pace(runs: Runs, arm: str, cell: Cell) -> float | None:
    """Its steps to 0.9 over those of *tuned*; a run that does not get there counts with all its steps and one."""
    best = grid.best(runs, cell)
    own = grid.of(runs, arm, cell if arm != "tuned" else best or cell, range(5))
    tuned = [] if best is None else grid.of(runs, "tuned", best, range(5))
    if not own or not tuned:
        return None
    goal = 0.9 * statistics.fmean(statistics.fmean(run["pass_rate"][-3:]) for run in tuned)
    one, other = (statistics.fmean(reached(run["pass_rate"], goal) for run in these) for these in (own, tuned))
    return one / other


def reached(curve: Sequence[float], goal: float) -> int:
    means = [statistics.fmean(curve[i : i + 3]) for i in range(len(curve) - 2)]
    return next((i + 3 for i, value in enumerate(means) if value >= goal), len(curve) + 1)


def less(runs: Runs, arm: str, cells: Sequence[Cell], seeds: Sequence[int] = range(5)) -> list[float]:
    """By how much the mean of each cell is above that of *tuned*, over the seeds that both have."""
    return list(differences(runs, arm, "tuned", cells, seeds).values())


def differences(
    runs: Runs, arm: str, beside: str, cells: Sequence[Cell], seeds: Sequence[int] = range(5)
) -> dict[Cell, float]:
    """By how much the mean of each cell is above that of another arm in it, over the seeds that both have."""
    found = {}
    for cell in cells:
        best = grid.best(runs, cell)
        places = [best if name == "tuned" else cell for name in (arm, beside)]
        both = [
            (one[0]["score"], other[0]["score"])
            for seed in seeds
            if places[0] is not None
            and places[1] is not None
            and (one := grid.of(runs, arm, places[0], [seed]))
            and (other := grid.of(runs, beside, places[1], [seed]))
        ]
        if both:
            found[cell] = statistics.fmean(one - other for one, other in both)
    return found
