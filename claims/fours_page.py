"""The section of claims/README.md on fours.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import fours

Runs = list[dict[str, Any]]
COLUMNS = ("fours", "distance", "coverage")


def section(runs: Runs) -> str:
    about = "\n\n".join((fours.__doc__ or "").split("\n\n")[1:-1])
    lines = [
        "## Flow-GRPO on digits (`fours.py`)",
        "",
        about,
        "",
        f"{len(runs)} of {len(fours.ARMS) * len(fours.SEEDS)} runs are recorded.",
        "",
    ]
    return "\n".join([*lines, table(runs), "", verdicts(runs), ""])


def table(runs: Runs) -> str:
    heads = ["arm", *(f"{name}, before and after" for name in COLUMNS), "fours by the SDE", "CPU seconds"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in fours.ARMS:
        own = [run for run in runs if run["arm"] == arm]
        cells = [f"{spread(own, f'{name}_before')} → {spread(own, f'{name}_after')}" for name in COLUMNS]
        lines.append(f"| *{arm}* | {' | '.join([*cells, spread(own, 'sde_after'), spread(own, 'cpu')])} |")
    return "\n".join(lines)


def spread(runs: Sequence[dict[str, Any]], name: str) -> str:
    """Median (least to most)."""
    values = [run[name] for run in runs]
    digits = 1 if name == "cpu" else 3
    return (
        f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
        if values
        else ""
    )


def verdicts(runs: Runs) -> str:
    def said(holds: bool) -> str:
        return "yes" if holds else "no"

    return (
        f"Learned: **{said(fours.learned(runs))}**. The distance and the coverage hold: **{said(fours.holds(runs))}**. Without the KL "
        f"every seed ends farther from the data than with it: **{said(fours.hacked(runs))}**."
    )
