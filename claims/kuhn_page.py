"""The section of claims/README.md on kuhn.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import kuhn

Runs = Sequence[Mapping[str, Any]]
BARS: Mapping[str, float] = {
    "resets": 0.1,
    "fewer": 0.1,
    "kuhn": 0.1,
    "leduc": 1.0,
    "small": 1.0,
    "wide": 1.0,
    "slow": 1.0,
}  # most NashConv of each arm
SECONDS = 300.0  # of the processor


def section(runs: Runs) -> str:
    lines = [
        "## Self-play in poker (`kuhn.py`)",
        "",
        "\n\n".join((kuhn.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {sum(kuhn.ARMS.values())} runs are recorded.",
        "",
        f"| run | seed | before | after | every {4 * kuhn.EVERY} steps | seconds | of the processor | load | illegal |",
        "| --- " * 9 + "|",
    ]
    for run in sorted(runs, key=lambda run: (list(kuhn.ARMS).index(run["arm"]), run["seed"])):
        course = ", ".join(f"{value:.2f}" for value in run["course"][4::4])
        figures = f"{run['before']:.3f} | {run['after']:.3f} | {course} | {run['seconds']:.0f} | {run['cpu']:.0f} | {run['load']:.1f}"
        left = "most {most:.3f}, matches {matches:.3f}".format(**run["illegal"]) if "illegal" in run else ""
        lines.append(f"| {run['arm']} | {run['seed']} | {figures} | {left} |")
    return "\n".join([*lines, "", *(f"{verdict(runs, arm)}\n" for arm in kuhn.ARMS)])


def reached(runs: Runs, arm: str) -> bool:
    """Whether each of its seeds is recorded and within the bar; Kuhn poker within the seconds, too."""
    here = [run for run in runs if run["arm"] == arm]
    near = all(run["after"] <= BARS[arm] and (BARS[arm] == 1.0 or run["cpu"] <= SECONDS) for run in here)
    return near and len(here) == kuhn.ARMS[arm]


def verdict(runs: Runs, arm: str) -> str:
    here = [run for run in runs if run["arm"] == arm]
    if not here:
        return f"Verdict, *{arm}*: no run is recorded."
    after, seconds = [run["after"] for run in here], [run["cpu"] for run in here]
    near = sum(value <= BARS[arm] for value in after)
    return (
        f"Verdict, *{arm}*: NashConv is at most {BARS[arm]:g} in {near} of {len(here)} seeds (median "
        f"{statistics.median(after):.3f}, worst {max(after):.3f}), in {min(seconds):.0f} to {max(seconds):.0f} s of the processor: "
        f"{'reached' if reached(runs, arm) else 'not reached'}."
    )
