"""The section of claims/README.md on worlds.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import worlds

from gimbal.ops.confidence import student_width

Runs = Sequence[Mapping[str, Any]]
LEAST, SECONDS = -200.0, 180.0


def section(runs: Runs) -> str:
    plans = [run for run in runs if run["kind"] in worlds.PLANS]
    lines = [
        "## Learned worlds (`worlds.py`)",
        "",
        "\n\n".join((worlds.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(plans)} of {len(worlds.PLANS) * len(worlds.SEEDS)} runs of planning are recorded, and {len(runs) - len(plans)} of 1 of "
        "ranking.",
        "",
        "| updates a step | seed | return | its episodes | error on new steps, first and last ten updates | seconds of the processor |",
        "| --- " * 6 + "|",
    ]
    for run in sorted(plans, key=lambda run: (list(worlds.PLANS).index(run["kind"]), run["seed"])):
        first, last = statistics.fmean(run["error"][:10]), statistics.fmean(run["error"][-10:])
        episodes = ", ".join(str(x) for x in sorted(run["episodes"]))
        lines.append(
            f"| {worlds.PLANS[run['kind']]:g} | {run['seed']} | {run['after']:.0f} | {episodes} | {first:.2f}, {last:.2f} | "
            f"{run['cpu']:.0f} |"
        )
    lines += ["", *(f"{verdict(plans, kind)}\n" for kind in worlds.PLANS)]
    for run in runs:
        if run["kind"] == "ranking":
            lines += ranking(run)
    return "\n".join(lines)


def reached(plans: Runs, kind: str) -> bool:
    """The median is enough for *planning*; of *twice* the worst has to be, too."""
    here = [run for run in plans if run["kind"] == kind]
    if {run["seed"] for run in here} != set(worlds.SEEDS):
        return False
    after = [run["after"] for run in here]
    least = statistics.median(after) if kind == "planning" else min(after)
    return least >= LEAST and all(run["cpu"] <= SECONDS for run in here)


def verdict(plans: Runs, kind: str) -> str:
    here = [run for run in plans if run["kind"] == kind]
    if {run["seed"] for run in here} != set(worlds.SEEDS):
        return f"Verdict on *{kind}*: not decided, seeds are missing."
    after = [run["after"] for run in here]
    return (
        f"Verdict on *{kind}*: median {statistics.median(after):.0f}, worst {min(after):.0f}, at most "
        f"{max(run['cpu'] for run in here):.0f} s: {'reached' if reached(plans, kind) else 'not reached'}."
    )


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Correlation of ranks, of which equal numbers share the mean."""
    ranks = [np.sign(np.subtract.outer(x, x)).sum(1) for x in (np.asarray(one), np.asarray(other))]
    return float(np.corrcoef(*ranks)[0, 1])


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    mean, half = statistics.fmean(values), statistics.stdev(values) * student_width(len(values), 0.025)
    return mean, mean - half, mean + half


def ranking(run: Mapping[str, Any]) -> list[str]:
    lines = [
        "| horizon | *single* | *own rollouts* | difference | gap, *single* | gap, *own rollouts* |",
        "| --- " * 6 + "|",
    ]
    for place, horizon in enumerate(worlds.HORIZONS):
        true = run["true"][place]
        found = {
            arm: [(w["imagined"][place]) for w in sorted(run["worlds"], key=lambda w: w["seed"]) if w["arm"] == arm]
            for arm in worlds.ARMS
        }
        agree = {arm: [spearman(own, true) for own in each] for arm, each in found.items()}
        gap = {arm: statistics.fmean(np.mean(np.subtract(own, true)) for own in each) for arm, each in found.items()}
        single, own = agree.values()
        mean, low, high = interval([b - a for a, b in zip(single, own, strict=True)])
        says = f"{mean:+.2f} ({low:+.2f} to {high:+.2f})" + (" **helps**" if low > 0 else "")
        means = [f"{statistics.fmean(x):.2f}" for x in (single, own)]
        lines.append(
            f"| {horizon} | {means[0]} | {means[1]} | {says} | " + " | ".join(f"{x:+.1f}" for x in gap.values()) + " |"
        )
    return [*lines, ""]
