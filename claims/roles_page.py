"""The section of claims/README.md on roles.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import campaign
import roles

from gimbal.ops.confidence import student_width

Runs = Sequence[Mapping[str, Any]]


def section(runs: Runs) -> str:
    whole = len(roles.ARMS) * (len(roles.RATES) + len(roles.SEEDS))
    lines = [
        "## Two roles, one model or two (`roles.py`)",
        "",
        "\n\n".join((roles.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {whole} runs are recorded; `python claims/roles.py` goes on.",
        "",
        "| arm | rate | seed | pass@1 after | mean pass rate in training | tokens | steps | CPU seconds |",
        "| --- " * 8 + "|",
    ]
    for run in sorted(runs, key=lambda run: (run["seed"] != roles.TUNING, run["arm"], run["rate"], run["seed"])):
        figures = f"{run['after']:.3f} | {run['mean']:.3f} | {run['tokens']:,} | {run['steps']} | {run['cpu']:.0f}"
        lines.append(f"| *{run['arm']}* | {run['rate']:g} | {run['seed']} | {figures} |")
    return "\n".join([*lines, "", verdict(runs), ""])


def pairs(runs: Runs) -> list[float]:
    """By how much *separate* is above *shared* in each seed that both have at their best rates."""
    rate = {arm: roles.best(list(runs), arm) for arm in roles.ARMS}
    by = {(run["arm"], run["seed"]): run["after"] for run in runs if run["rate"] == rate[run["arm"]]}
    both = [seed for seed in roles.SEEDS if all((arm, seed) in by for arm in roles.ARMS)]
    return [by["separate", seed] - by["shared", seed] for seed in both]


def verdict(runs: Runs) -> str:
    found = pairs(runs)
    if len(found) < len(roles.SEEDS):
        told = ", ".join(f"{difference:+.3f}" for difference in found)
        return f"Verdict: {len(found)} of {len(roles.SEEDS)} pairs are there{f' ({told})' if told else ''}: nothing is decided yet."
    mean, half = statistics.fmean(found), statistics.stdev(found) * student_width(len(found), 0.025)
    better = "*separate* is better" if mean - half > 0 else "*shared* is better" if mean + half < 0 else "not decided"
    told = ", ".join(f"*{arm}* at {campaign.chosen(roles.best(list(runs), arm), roles.RATES)}" for arm in roles.ARMS)
    return f"{told}. Verdict: *separate* minus *shared* {mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f}) of pass@1: **{better}**."
