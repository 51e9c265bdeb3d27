"""The section of claims/README.md on age.py; page.py writes it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import age
import grid
from age import MOVING, SAME, SECONDS, TASKS

from gimbal.ops.confidence import student_width

Runs = Sequence[Mapping[str, Any]]
STAY = ("1", "4", "16")
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
    found, seconds = {}, SECONDS[machine]
    curves = {arm: [(run["pass_rate"], [int(arm)] * grid.STEPS) for run in stays(tasks, arm)] for arm in STAY}
    moving = here(runs, MOVING, tasks)
    curves[MOVING] = [([row[0] for row in run["steps"]], [row[1] for row in run["steps"]]) for run in moving]
    for arm, of_runs in curves.items():
        reached = [(steps_to(curve, goal), bounds) for curve, bounds in of_runs]
        spent = [math.inf if n is None else sum(seconds[bound] for bound in bounds[:n]) for n, bounds in reached]
        found[arm] = statistics.median(spent) if spent else math.inf
    return found


def regrets(runs: Runs, goal: float) -> dict[tuple[str, str], dict[str, float]]:
    found = {}
    for tasks in TASKS:
        for machine in SECONDS:
            spent = times(runs, tasks, machine, goal)
            best = min(spent.values())
            found[tasks, machine] = {arm: time / best - 1 for arm, time in spent.items()}
    return found


def largest(runs: Runs, goal: float) -> dict[str, float]:
    rows = list(regrets(runs, goal).values())
    return {arm: max(row[arm] for row in rows) for arm in (*STAY, MOVING)}


def table(runs: Runs, goal: float) -> str:
    arms = (*STAY, MOVING)
    lines = [f"| tasks | limited by | {' | '.join(f'*{arm}*' for arm in arms)} |", "| --- " * (len(arms) + 2) + "|"]
    for (tasks, machine), row in regrets(runs, goal).items():
        spent = times(runs, tasks, machine, goal)
        cells = ["not reached" if spent[a] == math.inf else f"{spent[a] / 60:.0f} ({row[a]:+.2f})" for a in arms]
        lines.append(f"| {tasks} | {machine} | {' | '.join(cells)} |")
    most = largest(runs, goal)
    lines.append(f"| largest regret | | {' | '.join(f'{most[arm]:.2f}' for arm in arms)} |")
    return "\n".join(lines)


def verdict(runs: Runs) -> str:
    pairs = zip(here(runs, MOVING, TASKS[0]), here(runs, SAME, TASKS[0]), strict=False)
    apart = [one["score"] - other["score"] for one, other in pairs]
    most = largest(runs, GOALS[0])
    told = [f"(1) {'holds' if most[MOVING] < min(most[arm] for arm in STAY) else '**does not hold**'}"]
    if len(apart) > 1:
        mean, width = statistics.fmean(apart), student_width(len(apart), 0.025)
        half = statistics.stdev(apart) * width
        enough = len(apart) == len(age.SEEDS)
        good = mean > 0.02 and mean - half > 0
        says = ("holds" if good else "**does not hold**") if enough else "is not decided"
        told.append(f"(2) {says}: {mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f}, {len(apart)} pairs)")
    return "; ".join(told) + "."
