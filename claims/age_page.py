"""The section of claims/README.md on age.py; page.py writes it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import age
import grid
from age import ADMITTED, MOVING, SAME, SECONDS, TASKS

from gimbal.ops.confidence import student_width

Runs = Sequence[Mapping[str, Any]]
STAY = ("1", "4", "16")
AS_IT_IS, ADMITS = "moving, as it is", "4 of 16"  # added afterwards
ADDED = (AS_IT_IS, ADMITS)
GOALS = (0.8, 0.85)  # the first is the rule's


def section(runs: Runs) -> str:
    recorded = f"{len(runs)} of {len(age.trials())} runs are recorded"
    lines = [
        "## A bound on age that moves (`age.py`)",
        "",
        "\n\n".join((age.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{recorded}. Held-out pass@1 of *moving*: {scores(runs)}.",
        "",
    ]
    for goal in GOALS:
        lines += [f"**Simulated minutes to {goal}**, and the regret.", "", table(runs, goal), ""]
    return "\n".join([*lines, verdict(runs), ""])


def scores(runs: Runs) -> str:
    """By task set, with the bounds that stay beside them."""
    told = []
    for tasks in TASKS:
        found = [run["score"] for run in here(runs, MOVING, tasks)]
        others = ", ".join(f"*{arm}* {statistics.fmean(run['score'] for run in stays(tasks, arm)):.3f}" for arm in STAY)
        mean = f"{statistics.fmean(found):.3f} in the mean of {len(found)}" if found else "none"
        told.append(f"{tasks} {mean} (all of grid.json: {others})")
    return "; ".join(told)


def here(runs: Runs, arm: str, tasks: str, most: int = 16) -> list[Mapping[str, Any]]:
    wanted = {"arm": arm, "tasks": tasks, "most": most}
    return sorted(
        (run for run in runs if all(run[name] == value for name, value in wanted.items())), key=lambda run: run["seed"]
    )


def stays(tasks: str, arm: str) -> list[Mapping[str, Any]]:
    """The loop's runs of 24 steps in grid.json at this age."""
    wanted = {"tasks": tasks, "age": int(arm)}
    of_loop = [run for run in grid.load() if run["arm"] == "loop" and run["steps"] == grid.STEPS]
    return [run for run in of_loop if all(run["cell"][name] == value for name, value in wanted.items())]


def steps_to(curve: Sequence[float], goal: float) -> int | None:
    """Steps until the mean of the last three is at least ``goal``."""
    return next((i for i in range(3, len(curve) + 1) if sum(curve[i - 3 : i]) / 3 >= goal - 1e-9), None)


def times(runs: Runs, tasks: str, machine: str, goal: float) -> dict[str, float]:
    """The median simulated time of each arm, inf where it is not reached."""
    found: dict[str, float] = {}
    curves = {arm: [(run["pass_rate"], [int(arm)] * grid.STEPS) for run in stays(tasks, arm)] for arm in STAY}
    moving = here(runs, MOVING, tasks)
    curves[MOVING] = [([row[0] for row in run["steps"]], [row[1] for row in run["steps"]]) for run in moving]
    curves |= {AS_IT_IS: curves[MOVING], ADMITS: curves["4"]}
    for arm, of_runs in curves.items():
        seconds = (ADMITTED if arm in ADDED else SECONDS)[machine]
        reached = [(steps_to(curve, goal), bounds) for curve, bounds in of_runs]
        spent = [math.inf if n is None else sum(seconds[bound] for bound in bounds[:n]) for n, bounds in reached]
        found[arm] = statistics.median(spent) if spent else math.inf
    return found


def regrets(runs: Runs, goal: float) -> dict[tuple[str, str], dict[str, float]]:
    found = {}
    for tasks in TASKS:
        for machine in SECONDS:
            spent = times(runs, tasks, machine, goal)
            found[tasks, machine] = {arm: time / best(spent, arm) - 1 for arm, time in spent.items()}
    return found


def best(spent: Mapping[str, float], arm: str) -> float:
    """What an arm is held against: the rule's arms against each other, those added afterwards against all but the rule's *moving*."""
    return min(time for other, time in spent.items() if (other not in ADDED if arm not in ADDED else other != MOVING))


def largest(runs: Runs, goal: float) -> dict[str, float]:
    rows = list(regrets(runs, goal).values())
    return {arm: max(row[arm] for row in rows) for arm in rows[0]}


def table(runs: Runs, goal: float) -> str:
    arms = (*STAY, MOVING, *ADDED)
    lines = [f"| tasks | limited by | {' | '.join(f'*{arm}*' for arm in arms)} |", "| --- " * (len(arms) + 2) + "|"]
    for (tasks, machine), row in regrets(runs, goal).items():
        spent = times(runs, tasks, machine, goal)
        cells = ["not reached" if spent[a] == math.inf else f"{spent[a] / 60:.0f} ({row[a]:+.2f})" for a in arms]
        lines.append(f"| {tasks} | {machine} | {' | '.join(cells)} |")
    most = largest(runs, goal)
    lines.append(f"| largest regret | | {' | '.join(f'{most[arm]:.2f}' for arm in arms)} |")
    return "\n".join(lines)


def gained(runs: Runs) -> tuple[float, float, float, int]:
    """Held-out score of *moving* less that of *16* on the same seeds, its interval, and how many pairs."""
    pairs = zip(here(runs, MOVING, TASKS[0]), here(runs, SAME, TASKS[0]), strict=True)
    apart = [one["score"] - other["score"] for one, other in pairs]
    mean, half = statistics.fmean(apart), statistics.stdev(apart) * student_width(len(apart), 0.025)
    return mean, mean - half, mean + half, len(apart)


def verdict(runs: Runs) -> str:
    most, (mean, low, high, count) = largest(runs, GOALS[0]), gained(runs)
    below = statistics.fmean(run["score"] for run in here(runs, MOVING, TASKS[0], 4))
    below -= statistics.fmean(run["score"] for run in stays(TASKS[0], "4"))
    told = {
        "": most[MOVING] < min(most[arm] for arm in STAY),
        f": {mean:+.3f} ({low:+.3f} to {high:+.3f}, {count} pairs)": mean > 0.02 and low > 0,
        f": {below:+.3f}": below >= -0.02,
    }
    each = [f"({i}) {'holds' if good else '**does not hold**'}{why}" for i, (why, good) in enumerate(told.items(), 1)]
    return "; ".join(each) + "."
