"""The section of claims/README.md on two_modes.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import campaign
import two_modes
from offline_page import SAID

FIGURES = ("better", "worse", "between", "above", "reward", "imitation/error", "cpu")


def section(runs: campaign.Runs) -> str:
    about = "\n\n".join((two_modes.__doc__ or "").split("\n\n")[1:-1])
    count = f"{len(runs)} of {two_modes.TUNED.whole} runs are recorded."
    lines = ["## A bandit with two modes (`two_modes.py`)", "", about, "", count, "", table(runs), "", rule(runs)]
    return "\n".join([*lines, "", verdict(runs), ""])


def table(runs: campaign.Runs) -> str:
    """Median (least to most) of the seeds at each arm's rate."""
    heads = ("near the better", "near the worse", "between", "above 0", "mean reward", "imitation error", "CPU seconds")
    lines = [f"| arm | rate | {' | '.join(heads)} |", "| --- " * (len(heads) + 2) + "|"]
    for arm in two_modes.TUNED.arms:
        own = two_modes.TUNED.fresh(runs, arm)
        cells = [spread([run[figure] for run in own]) for figure in FIGURES]
        lines.append(f"| *{arm}* | {two_modes.TUNED.chosen(runs, arm)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})" if values else ""


def rule(runs: campaign.Runs) -> str:
    lines = ["| in each seed | holds |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {SAID[holds]} |" for name, holds in two_modes.conditions(runs).items())])


def verdict(runs: campaign.Runs) -> str:
    found = list(two_modes.conditions(runs).values())
    if None in found:
        return f"Verdict: open. {found.count(True)} of {len(found)} lines hold so far, {found.count(None)} lack seeds."
    said = "holds" if all(found) else "does not hold"
    return f"Verdict: **{said}**: {found.count(True)} of {len(found)} lines hold."
