"""The loop of grid.py beside its other arms, with intervals, and what else documents say of it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grid
import numpy as np
from grid import Cell
from grid_scores import Runs, collapsed, differences, pace, scores
from intervals import clustered

from gimbal.controllers import Stability
from gimbal.controllers.stability import SLOWEST

CLOSE = 0.02
LOW = 1e-4  # the largest rate from which no run without the loop collapsed
SETTLED = 8  # steps after which the loop has found its rate


def beside(runs: Runs) -> str:
    """What the README says of the loop beside the same method tuned in each setting, and at one good rate."""
    cells = grid.hypercube()
    found = differences(runs, "loop", "tuned", cells)
    whole = beside_of(found)
    parts = ", ".join(
        f"{sum(value < -CLOSE for cell, value in found.items() if cell.tasks == name)} on {name}"
        for name in reversed(grid.LEVELS["tasks"])
    )
    settings = dict.fromkeys(cell._replace(rate=3e-5) for cell in grid.hypercube() + grid.corners())
    fixed = [run["score"] for cell in settings for run in grid.of(runs, "tuned", cell, [grid.TUNING])]
    own = [run["score"] for cell in dict.fromkeys(cells + grid.corners()) for run in grid.of(runs, "loop", cell, [0])]
    return (
        f"Compared with the same method tuned in each setting (best of {len(grid.TRIED)} rates), the loop is {whole.median:+.3f} in "
        f"the median (95 % {whole.low:+.3f} to {whole.high:+.3f}), and more than {CLOSE:.2f} below in {whole.lost} of {whole.cells} "
        f"settings ({parts}). If you know a good rate, you need no loop: 3e-5 in every setting has a median of "
        f"{statistics.median(fixed):.2f} (minimum {min(fixed):.2f}; {len(fixed)} runs on the seed on which rates were chosen, which "
        f"flatters them by about {flattered(runs):.2f}), the loop's {len(own)} runs of one seed {statistics.median(own):.2f} "
        f"({min(own):.2f})."
    )


@dataclass(frozen=True)
class Beside:
    """The loop less another arm: the median over cells with its interval, and how many cells it is lower in."""

    cells: int
    settings: int
    median: float
    low: float
    high: float
    lower: int
    lost: int  # more than CLOSE below
    least: float


def beside_of(found: Mapping[Cell, float]) -> Beside:
    settings: dict[Cell, list[float]] = defaultdict(list)
    for cell, value in found.items():
        settings[cell._replace(rate=0.0)].append(value)
    values = list(found.values())
    ends = clustered(list(settings.values()), np.random.default_rng(0))
    lower, lost = (sum(value < bound for value in values) for bound in (0, -CLOSE))
    return Beside(len(values), len(settings), statistics.median(values), *ends, lower, lost, min(values))


def comparisons(runs: Runs) -> dict[str, Beside]:
    """The loop beside *tuned* over all seeds and over parts of them, by task set, and beside the same rate kept."""
    cells = grid.hypercube()
    of = {name: [cell for cell in cells if cell.tasks == name] for name in grid.LEVELS["tasks"]}
    slow = [cell for cell in cells if cell.rate <= LOW]
    parts = {
        "*tuned*, all seeds": differences(runs, "loop", "tuned", cells),
        "*tuned*, seed 0": differences(runs, "loop", "tuned", cells, [0]),
        "*tuned*, seeds 1 and 2": differences(runs, "loop", "tuned", cells, [1, 2]),
        **{f"*tuned*, {name}": differences(runs, "loop", "tuned", those) for name, those in of.items()},
        f"*decoupled*, rates up to {LOW:g}": differences(runs, "loop", "decoupled", slow),
    }
    return {name: beside_of(found) for name, found in parts.items()}


def apart(runs: Runs) -> str:
    lines = [
        f"| beside | cells | settings | median | interval | lower in | more than {CLOSE} lower | least |",
        "| --- " * 8 + "|",
    ]
    for name, one in comparisons(runs).items():
        interval = f"{one.low:+.3f} to {one.high:+.3f}"
        counts = f"{one.lower} of {one.cells} | {one.lost} of {one.cells}"
        lines.append(
            f"| {name} | {one.cells} | {one.settings} | {one.median:+.3f} | {interval} | {counts} | {one.least:+.3f} |"
        )
    return "\n".join(lines)


def remarks(runs: Runs) -> str:
    effect = {name: f"{value:+.3f} (standard error {error:.3f})" for name, (value, error) in effects(runs).items()}
    ages = ", ".join(f"{100 * taken(runs, age):.0f}" for age in grid.LEVELS["age"])
    low, middle, high = rates(runs)
    least, most = fatal(runs)
    return (
        f"Standard deviation between the seeds of a cell, of the loop: {deviation(runs):.3f}. It needs more than 1.3 times the steps "
        f"of *tuned* in {slower(runs)} of {len(grid.hypercube())} cells. Of the difference to *tuned* a fit of all factors gives "
        f"{effect['int8']} to int8, {effect['int4']} to int4 and {effect['2']} to groups of 2. After step {SETTLED} the loop's "
        f"learning rate is {middle:.1e} in the median run (a tenth of runs below {low:.1e}, a tenth above {high:.1e}), of which the "
        f"distance of the data takes {ages} % at ages {', '.join(map(str, grid.LEVELS['age']))} (medians over steps). Runs without "
        f"the loop collapsed at {least:.0f} to {most:.0f} times the rate of *tuned*. At 3e-5 the tuning runs are "
        f"{flattered(runs):+.3f} above fresh seeds."
    )


def deviation(runs: Runs) -> float:
    """Between the seeds of a cell, of the loop: the root of the mean variance."""
    own = [scores(runs, "loop", cell) for cell in grid.hypercube()]
    return statistics.fmean(statistics.variance(found) for found in own if len(found) > 1) ** 0.5


def effects(runs: Runs) -> dict[str, tuple[float, float]]:
    """Of samplers and group sizes on the loop less *tuned*, with standard errors: least squares on all factors, a column a level."""
    found = differences(runs, "loop", "tuned", grid.hypercube())
    names = [(factor, level) for factor, levels in grid.LEVELS.items() for level in levels[1:]]
    columns = [[1.0, *(float(cell._asdict()[factor] == level) for factor, level in names)] for cell in found]
    design, apart = np.array(columns), np.array(list(found.values()))
    fitted, *_ = np.linalg.lstsq(design, apart, rcond=None)
    variance = ((apart - design @ fitted) ** 2).sum() / (len(apart) - design.shape[1])
    error = np.sqrt(variance * np.linalg.inv(design.T @ design).diagonal())
    both = zip(names, fitted[1:], error[1:], strict=True)
    return {str(level): (float(x), float(e)) for (factor, level), x, e in both if factor in ("sampler", "group")}


def taken(runs: Runs, age: int) -> float:
    """The share of the learning rate that the distance of the data takes from the loop: median over steps and runs."""
    steps = [
        step
        for cell in grid.hypercube()
        if cell.age == age
        for run in grid.of(runs, "loop", cell, range(5))
        for step in run["loop"][SETTLED:]
    ]
    return statistics.median(share(step["loop/discrepancy"], step["loop/target"]) for step in steps)


def share(discrepancy: float, target: float) -> float:
    """Of the learning rate: sqrt(discrepancy / (c most)), where target = c kl (1 - share)^2 has the c that is not recorded."""
    region = Stability().region
    far, near = (max(discrepancy, 0.0) / region.discrepancy) ** 0.5, (target / region.kl) ** 0.5
    return min(1 - SLOWEST, far / (far + near))


def slower(runs: Runs, times: float = 1.3) -> int:
    """Cells of the hypercube in which the loop needs more than so many times the steps of *tuned*."""
    return sum((pace(runs, "loop", cell) or 0.0) > times for cell in grid.hypercube())


def rates(runs: Runs, cells: Sequence[Cell] = ()) -> tuple[float, float, float]:
    """The loop's learning rate, of each run the median over the steps once it has settled: a tenth, the middle, nine tenths of runs."""
    cells = cells or grid.hypercube() + grid.corners()
    found = [
        run["cell"]["rate"] * statistics.median(step["loop/factor"] for step in run["loop"][SETTLED:])
        for cell in dict.fromkeys(cells)
        for run in grid.of(runs, "loop", cell, range(5))
    ]
    tenths = statistics.quantiles(found, n=10)
    return tenths[0], statistics.median(found), tenths[-1]


def fatal(runs: Runs) -> tuple[float, float]:
    """The least and the largest learning rate, over that of *tuned*, at which a run of *decoupled* collapsed."""
    found = [
        cell.rate / best.rate
        for cell in grid.hypercube() + grid.corners()
        if collapsed(runs, "decoupled", cell) and (best := grid.best(runs, cell)) is not None
    ]
    return min(found), max(found)


def flattered(runs: Runs, rate: float = 3e-5) -> float:
    """By how much a rate's tuning runs are above the mean of fresh seeds, over the settings where it was the best."""
    cells = dict.fromkeys(cell._replace(rate=rate) for cell in grid.hypercube() + grid.corners())
    both = [
        (tried[0]["score"], [run["score"] for run in fresh])
        for cell in cells
        if (tried := grid.of(runs, "tuned", cell, [grid.TUNING])) and (fresh := grid.of(runs, "tuned", cell, range(5)))
    ]
    return statistics.fmean(one - statistics.fmean(others) for one, others in both)
