"""The section of claims/README.md on offline.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import offline

Runs = Sequence[dict[str, Any]]
SAID = {True: "yes", False: "no", None: "seeds are missing"}


def section(runs: Runs) -> str:
    whole = len(offline.ARMS) * len(offline.DATA) * len(offline.SEEDS)
    about = "\n\n".join((offline.__doc__ or "").split("\n\n")[1:-1])
    lines = [
        "## Control from recorded episodes alone (`offline.py`)",
        "",
        about,
        "",
        f"{len(runs)} of {whole} runs are recorded.",
    ]
    return "\n".join([*lines, "", table(runs), "", comparisons(runs), "", verdict(runs), ""])


def table(runs: Runs) -> str:
    lines = [f"| arm | {' | '.join(offline.DATA)} | seconds of CPU |", "| --- " * (len(offline.DATA) + 2) + "|"]
    for arm in offline.ARMS:
        own = [run for run in runs if run["arm"] == arm]
        cells = [spread([run["return"] for run in own if run["data"] == data]) for data in offline.DATA]
        lines.append(f"| *{arm}* | {' | '.join(cells)} | {spread([run['cpu'] for run in own])} |")
    return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    """Median (least to most), and of how many runs where seeds are missing."""
    if not values:
        return ""
    few = "" if len(values) >= len(offline.SEEDS) else f", {len(values)} runs"
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g}{few})"


def held(apart: tuple[float, float, float] | None) -> str:
    """Whether one is above another, by a difference and its interval."""
    if apart is None:
        return SAID[None]
    return "yes" if apart[1] > 0 else "no: below" if apart[2] < 0 else "undecided"


def comparisons(runs: Runs) -> str:
    lines = ["| method | data | above behavior cloning by | its base above it by | holds |", "| --- " * 5 + "|"]
    for arm, base in offline.BASE.items():
        for data in offline.DATA:
            cells = [shown(offline.difference(runs, *pair, data)) for pair in ((arm, "bc"), (base, arm))]
            lines.append(f"| *{arm}* | {data} | {' | '.join(cells)} | {SAID[offline.holds(runs, arm, data)]} |")
    return "\n".join(lines)


def shown(found: tuple[float, float, float] | None) -> str:
    return "" if found is None else f"{found[0]:.4g} ({found[1]:.4g} to {found[2]:.4g})"


def verdict(runs: Runs) -> str:
    found = [offline.holds(runs, arm, data) for arm in offline.BASE for data in offline.DATA]
    if None in found:
        return f"Verdict: open. {found.count(True)} of {len(found)} hold so far, {found.count(None)} lack seeds."
    return f"Verdict: **{'holds' if all(found) else 'does not hold as a whole'}**: {found.count(True)} of {len(found)} hold."
