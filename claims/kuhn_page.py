"""The section of claims/README.md on kuhn.py; page.py writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import kuhn

Runs = Sequence[Mapping[str, Any]]
NEAR, SECONDS = 0.1, 300


def section(runs: Runs) -> str:
    lines = [
        "## Self-play on Kuhn poker (`kuhn.py`)",
        "",
        "\n\n".join((kuhn.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {len(kuhn.SEEDS)} runs are recorded; `python claims/kuhn.py` goes on.",
        "",
        f"| seed | exploitability, every {kuhn.EVERY} steps | CPU seconds | seconds | load |",
        "| --- " * 5 + "|",
    ]
    for run in sorted(runs, key=lambda run: run["seed"]):
        path = ", ".join(f"{value:.3f}" for value in run["path"])
        lines.append(f"| {run['seed']} | {path} | {run['cpu']} | {run['seconds']} | {run['load']} |")
    near = sum(run["path"][-1] <= NEAR for run in runs)
    soon = sum(run["cpu"] <= SECONDS for run in runs)
    reached = near == soon == len(kuhn.SEEDS)
    told = (
        f"At most {NEAR} in {near} of {len(runs)} seeds, within {SECONDS} seconds of the processor in {soon}: "
        f"**{'reached' if reached else 'not reached'}**."
    )
    return "\n".join([*lines, "", told, ""])
