"""The section of claims/README.md on horizon.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import horizon

from gimbal.ops.confidence import student_width

Runs = Sequence[Mapping[str, Any]]
NEEDED = [f"turns_{count + 1}" for count in horizon.FILES]


def section(runs: Runs) -> str:
    whole = len(horizon.STAGES) * (len(horizon.RATES) + len(horizon.SEEDS))
    lines = [
        "## A limit on turns that rises (`horizon.py`)",
        "",
        "\n\n".join((horizon.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {whole} runs are recorded; `python claims/horizon.py` goes on. *Truncated*: the share of rollouts;",
        "*calls*: programs an episode in the last three steps.",
        "",
        "| arm | rate | seed | success | of 2 turns | of 3 | of 4 | truncated | calls at the end | collapsed | steps "
        "| CPU seconds |",
        "| --- " * 12 + "|",
    ]
    arms = list(horizon.STAGES)
    order = sorted(
        runs, key=lambda run: (run["seed"] != horizon.TUNING, arms.index(run["arm"]), run["rate"], run["seed"])
    )
    for run in order:
        needed = " | ".join(f"{run[name]:.3f}" for name in NEEDED)
        figures = (
            f"{run['after']:.3f} | {needed} | {statistics.fmean(run['truncated']):.3f} | {statistics.fmean(run['calls'][-3:]):.2f} | "
            f"{'yes' if run['collapsed'] else 'no'} | {run['steps']} | {run['cpu']:.0f}"
        )
        lines.append(f"| *{run['arm']}* | {run['rate']:g} | {run['seed']} | {figures} |")
    return "\n".join([*lines, "", f"Verdict: {' '.join(compared(runs, arm) for arm in ('short', 'long'))}", ""])


def pairs(runs: Runs, arm: str) -> list[float]:
    """By how much *staged* is above an arm in each seed that both have at their best rates."""
    rate = {name: horizon.best(list(runs), name) for name in ("staged", arm)}
    by = {
        (run["arm"], run["seed"]): run["after"]
        for run in runs
        if run["arm"] in rate and run["rate"] == rate[run["arm"]]
    }
    return [by["staged", seed] - by[arm, seed] for seed in horizon.SEEDS if {("staged", seed), (arm, seed)} <= set(by)]


def compared(runs: Runs, arm: str) -> str:
    found = pairs(runs, arm)
    if len(found) < len(horizon.SEEDS):
        return f"*staged* and *{arm}*: {len(found)} of {len(horizon.SEEDS)} pairs are there, nothing is decided yet."
    mean, half = statistics.fmean(found), statistics.stdev(found) * student_width(len(found), 0.025)
    is_ = "better" if mean - half > 0 else "worse" if mean + half < 0 else "not decided"
    return f"*staged* minus *{arm}* {mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f}): **{is_}**."
