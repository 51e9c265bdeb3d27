"""The section of claims/README.md on grid.py, and its figure; page.py writes both."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import grid
from grid import Cell
from grid_apart import CLOSE, SETTLED, apart, remarks
from grid_scores import Runs, collapsed, less, mean, pace, reached, scores
from panels import GAP, HEIGHT, LEFT, TOP, WIDTH, drawing, frame

from gimbal.report.figure import COLOURS

ARMS = ("loop", "decoupled", "plain")  # at the rate of the cell
TUNED = "#888888"  # its colour
RESAMPLING = """95 % by a bootstrap over settings: cells that differ in the rate alone are redrawn together."""
GOAL = 0.75  # of training's pass rate, a mean over three steps
READING = f"""Score: median (least to most) over cells, of each cell the mean of its seeds. "Below tuned": cells whose mean is more
than {CLOSE} below that of *tuned*, of those that have both. "Steps": median over cells of the steps to 0.9, over those of *tuned*.
"""


def section(runs: Runs) -> str:
    lines = [
        "## A closed loop over the learning rate (`grid.py`)",
        "",
        "![Scores by learning rate and by age](grid.svg)",
        "",
    ]
    lines += [
        "\n\n".join((grid.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {grid.whole()} runs are recorded.",
        "",
        READING,
    ]
    lines += [
        "**The hypercube.**",
        "",
        summary(runs, grid.hypercube()),
        "",
        "**The corners.**",
        "",
        summary(runs, grid.corners()),
        "",
        f"**The loop beside the others**, of each cell the mean of its seeds. {RESAMPLING}",
        "",
        apart(runs),
        "",
        remarks(runs),
        "",
    ]
    lines += [
        "**One rate for all settings**: the tuning runs (one seed, 128 tasks), beside the seed 0 of the loop.",
        "",
        single(runs),
        "",
    ]
    lines += ["**By learning rate**, the hypercube: median score, and runs that collapsed.", "", by(runs, "rate"), ""]
    lines += ["**By age.**", "", by(runs, "age"), ""]
    lines += ["**What age costs the loop**, medians of the hypercube, means of the two subjects.", "", priced(runs), ""]
    lines += [f"**{grid.LONG} steps.**", "", longer(runs), ""]
    lines += ["**Every cell**: the mean over its seeds; of *tuned* with its rate.", "", every(runs), ""]
    return "\n".join(lines)


def table(runs: Runs) -> str:
    """What the README shows: median scores by initial learning rate and tasks, and runs that collapsed, corners included."""
    rates = grid.LEVELS["rate"]
    names = [f"{rate:.0e}".replace("e-0", "e-") for rate in rates]
    lines = [f"| initial learning rate | {' | '.join(names)} |", "|---" * (1 + len(rates)) + "|"]
    arms = {"loop": "closed loop", "decoupled": "constant rate"}
    for tasks in grid.LEVELS["tasks"]:
        cells = [[one for one in grid.hypercube() if (one.rate, one.tasks) == (rate, tasks)] for rate in rates]
        for arm, name in arms.items():
            medians = [f"{statistics.median(mean(runs, arm, cell) for cell in these):.2f}" for these in cells]
            counts = f" ({', '.join(str(len(these)) for these in cells)} settings)" if arm == "loop" else ""
            lines.append(f"| {tasks}, {name}{counts} | {' | '.join(medians)} |")
    every = dict.fromkeys(grid.hypercube() + grid.corners())
    for arm, name in arms.items():
        cells = [[cell for cell in every if cell.rate == rate] for rate in rates]
        worse = [
            f"{sum(collapsed(runs, arm, one) for one in these)} of {sum(len(scores(runs, arm, one)) for one in these)}"
            for these in cells
        ]
        lines.append(f"| runs that ended below their start, {name} | {' | '.join(worse)} |")
    return "\n".join(lines)


def summary(runs: Runs, cells: Sequence[Cell]) -> str:
    lines = [
        "| arm | cells | runs | collapsed | score | less *tuned*, median | below tuned | steps |",
        "| --- " * 8 + "|",
    ]
    for arm in (*ARMS, "tuned"):
        here = [cell for cell in cells if scores(runs, arm, cell)]
        if not here:
            continue
        means = [statistics.fmean(scores(runs, arm, cell)) for cell in here]
        apart = less(runs, arm, here)
        count = sum(len(scores(runs, arm, cell)) for cell in here)
        lost = sum(collapsed(runs, arm, cell) for cell in here)
        paces = [found for cell in here if (found := pace(runs, arm, cell)) is not None]
        row = [f"*{arm}*", str(len(here)), str(count), str(lost)]
        row.append(f"{statistics.median(means):.3f} ({min(means):.3f} to {max(means):.3f})")
        row.append(f"{statistics.median(apart):+.3f}" if apart and arm != "tuned" else "")
        row.append(f"{sum(one < -CLOSE for one in apart)} of {len(apart)}" if apart and arm != "tuned" else "")
        row.append(f"{statistics.median(paces):.2f}" if paces and arm != "tuned" else "")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def single(runs: Runs) -> str:
    """What nobody had to tune for: the same rate in every setting, and the loop in the cells of these settings."""
    cells = grid.hypercube() + grid.corners()
    lines = ["| | settings | collapsed | score, median | least |", "| --- " * 5 + "|"]
    for rate in grid.TRIED:
        settings = list(dict.fromkeys(cell._replace(rate=rate) for cell in cells))
        found = [
            (run["score"], grid.start(runs, c)) for c in settings for run in grid.of(runs, "tuned", c, [grid.TUNING])
        ]
        lines.append(_row(f"fixed at {rate:g}", found))
    found = [(run["score"], grid.start(runs, c)) for c in dict.fromkeys(cells) for run in grid.of(runs, "loop", c, [0])]
    lines.append(_row("*loop*, from the rate of the cell", found))
    return "\n".join(line for line in lines if line)


def _row(name: str, found: Sequence[tuple[float, float]]) -> str:
    """``found``: (score, what the first policy scores) of each run."""
    if not found:
        return ""
    scores, lost = [score for score, _ in found], sum(score < before for score, before in found)
    return f"| {name} | {len(found)} | {lost} | {statistics.median(scores):.3f} | {min(scores):.3f} |"


def grouped(runs: Runs, arm: str, factor: str) -> dict[Any, list[Cell]]:
    found: dict[Any, list[Cell]] = defaultdict(list)
    for cell in grid.hypercube():
        if scores(runs, arm, cell):
            found[cell._asdict()[factor]].append(cell)
    return found


def by(runs: Runs, factor: str) -> str:
    levels = sorted(grid.LEVELS[factor])
    lines = [f"| arm | {' | '.join(f'{level:g}' for level in levels)} |", "| --- " * (len(levels) + 1) + "|"]
    for arm in ARMS:
        if cells := grouped(runs, arm, factor):
            row = [f"*{arm}*", *(level_of(runs, arm, cells[level]) for level in levels)]
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def level_of(runs: Runs, arm: str, cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    every = [score for cell in cells for score in scores(runs, arm, cell)]
    lost = sum(collapsed(runs, arm, cell) for cell in cells)
    return f"{statistics.median(every):.3f}, {lost} of {len(every)}"


def prices(runs: Runs) -> dict[int, tuple[float, float, float]]:
    """By age, of *loop*: its learning rate, steps to the goal and score beside those at age 0. Medians, then means of subjects."""
    found: dict[int, tuple[float, float, float]] = {}
    for age in grid.LEVELS["age"]:
        apart = []
        for subject in grid.LEVELS["tasks"]:
            here, fresh = (_medians(runs, subject, one) for one in (age, 0))
            apart.append((here[0] / fresh[0], here[1] / fresh[1], here[2] - fresh[2]))
        found[age] = tuple(statistics.fmean(column) for column in zip(*apart, strict=True))  # pyrefly: ignore[bad-assignment]
    return found


def _medians(runs: Runs, subject: str, age: int) -> tuple[float, float, float]:
    here = [
        run
        for c in grid.hypercube()
        if (c.tasks, c.age) == (subject, age)
        for run in grid.of(runs, "loop", c, range(5))
    ]
    rates = [
        run["cell"]["rate"] * statistics.median(step["loop/factor"] for step in run["loop"][SETTLED:]) for run in here
    ]
    steps = [reached(run["pass_rate"], GOAL) for run in here]
    return statistics.median(rates), statistics.median(steps), statistics.median(run["score"] for run in here)


def priced(runs: Runs) -> str:
    lines = [f"| age | learning rate, beside age 0 | steps to {GOAL} | score |", "| --- " * 4 + "|"]
    lines += [
        f"| {age} | {rate:.2f} | {steps:.2f} | {score:+.3f} |" for age, (rate, steps, score) in prices(runs).items()
    ]
    return "\n".join(lines)


def said(cell: Cell) -> str:
    return f"{cell.tasks}, age {cell.age}, {cell.sampler}, groups of {cell.group}, {cell.rate:g}"


def longer(runs: Runs) -> str:
    lines = ["| cell | before | *loop* | *decoupled* |", "| --- " * 4 + "|"]
    for cell in grid.long():
        found = [grid.of(runs, arm, cell, range(5), grid.LONG) for arm in ("loop", "decoupled")]
        shown = [", ".join(f"{run['score']:.3f}" for run in these) for these in found]
        if any(shown):
            lines.append(f"| {said(cell)} | {grid.start(runs, cell):.3f} | {' | '.join(shown)} |")
    return "\n".join(lines)


def every(runs: Runs) -> str:
    lines = ["| cell | before | *loop* | *decoupled* | *plain* | *tuned* |", "| --- " * 6 + "|"]
    for cell in grid.hypercube() + grid.corners():
        shown = [average(scores(runs, arm, cell)) for arm in (*ARMS, "tuned")]
        if not any(shown):
            continue
        if shown[-1]:
            best = grid.best(runs, cell)
            shown[-1] += f" at {best.rate:g}" if best is not None else ""
        lines.append(f"| {said(cell)} | {grid.start(runs, cell):.3f} | {' | '.join(shown)} |")
    return "\n".join(lines)


def average(found: Sequence[float]) -> str:
    return f"{statistics.fmean(found):.3f}" if found else ""


def figure(runs: Runs) -> str:
    """Each run a point, the median of each level a line: by the rate it was started at, and by the age of its data. Above: how many
    runs collapsed. Dashed: *tuned*, which has a rate of its own.
    """
    shown = [arm for arm in ARMS if grouped(runs, arm, "rate")]
    panels = [panel(runs, LEFT, "rate", "learning rate that was typed", shown)]
    panels.append(panel(runs, LEFT + WIDTH + GAP, "age", "age of the data (versions)", shown))
    says = {"loop": "closed loop", "decoupled": "the same without it", "plain": "one update, no correction"}
    title = f"Held-out pass@1 after {grid.STEPS} steps in {len(grid.hypercube())} settings: each run, medians; above: collapsed"
    legend = [(COLOURS[i], f"{arm}: {says[arm]}") for i, arm in enumerate(shown)]
    if grouped(runs, "tuned", "rate"):
        legend.append((TUNED, f"tuned: without it, at the best of {len(grid.TRIED)} rates in each setting"))
    return drawing(title, title, panels, legend)


def panel(runs: Runs, left: float, factor: str, below: str, shown: Sequence[str]) -> str:
    levels = sorted(grid.LEVELS[factor])
    step = WIDTH / (len(levels) - 1)
    parts = frame(left, [f"{level:g}" for level in levels], below)
    for place, arm in enumerate(shown):
        middle = []
        cells = grouped(runs, arm, factor)
        for i, level in enumerate(levels):
            found = [score for cell in cells[level] for score in scores(runs, arm, cell)]
            x = left + i * step + 5 * (place - 1)
            parts += [
                f'<circle cx="{x:.1f}" cy="{TOP + HEIGHT * (1 - score):.1f}" r="2" opacity="0.5" fill="{COLOURS[place]}"/>'
                for score in found
            ]
            if found:
                lost = sum(collapsed(runs, arm, cell) for cell in cells[level])
                parts.append(
                    f'<text x="{left + i * step:.1f}" y="{TOP - 4 - 11 * (len(shown) - 1 - place)}" text-anchor="middle" '
                    f'font-size="9" fill="{COLOURS[place]}">{lost} of {len(found)}</text>'
                )
                middle.append(f"{x:.1f},{TOP + HEIGHT * (1 - statistics.median(found)):.1f}")
        parts.append(f'<polyline class="line" stroke="{COLOURS[place]}" points="{" ".join(middle)}"/>')
    return "".join(parts) + tuned_line(runs, left, factor, step)


def tuned_line(runs: Runs, left: float, factor: str, step: float) -> str:
    cells = grouped(runs, "tuned", factor)
    points = [
        f"{left + i * step:.1f},{TOP + HEIGHT * (1 - statistics.median(found)):.1f}"
        for i, level in enumerate(sorted(grid.LEVELS[factor]))
        if (found := [score for cell in cells[level] for score in scores(runs, "tuned", cell)])
    ]
    return (
        f'<polyline class="line" stroke="{TUNED}" stroke-dasharray="4 3" points="{" ".join(points)}"/>'
        if points
        else ""
    )
