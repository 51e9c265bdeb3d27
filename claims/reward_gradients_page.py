"""The section of claims/README.md on reward_gradients.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import campaign
import reward_gradients as claim

Runs = list[dict[str, Any]]
COLUMNS = {"reward": "reward", "true": "true reward", "coverage": "coverage", "early": "true reward at 3 CPU seconds"}

READING = """**Read afterwards.** The best rates of *flow_grpo* and *drtune* lie at opposite ends of the three, so both might gain
from further ones. The true reward at 3 CPU seconds is of the samples trained on: those of *flow_grpo* are drawn by its SDE and
are noisier than the ODE's, on which it ends far higher, so its last column does not tell who is quicker. The seconds are of a
machine with a load of 15 on two cores.
"""


def section(runs: Runs) -> str:
    about = "\n\n".join((claim.__doc__ or "").split("\n\n")[1:-1])
    whole = len(claim.ARMS) * (len(claim.SEEDS) + len(claim.RATES))
    lines = ["## The gradient of the reward (`reward_gradients.py`)", "", about, ""]
    lines += [f"{len(runs)} of {whole} runs are recorded.", ""]
    return "\n".join([*lines, table(runs), "", verdicts(runs), "", READING])


def table(runs: Runs) -> str:
    heads = ["arm", "rate (true reward of the tuning runs)", "seeds", *COLUMNS.values(), "steps", "CPU seconds"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in claim.ARMS:
        own, rate = claim.fresh(runs, arm), claim.best(runs, arm)
        tuned = ", ".join(f"{rate:g}: {true:.2f}" for rate, true in sorted(claim.tuned(runs, arm).items()))
        cells = [f"*{arm}*", f"{campaign.chosen(rate, claim.RATES)} ({tuned})", str(len(own))]
        cells += [spread([claim.figures(run)[name] for run in own]) for name in COLUMNS]
        cells += [spread([len(run["curve"]["true"]) for run in own], 0), spread([run["cpu"] for run in own], 1)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median (least to most); empty of no values."""
    if not values:
        return ""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def verdicts(runs: Runs) -> str:
    heads = ["beside *flow_grpo*", *COLUMNS.values(), "the slope is hacked"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in claim.ARMS[1:]:
        hacked = claim.hacked(runs, arm)
        said = "not run" if hacked is None else "yes" if hacked else "no"
        lines.append(f"| *{arm}* | {' | '.join([*(claim.beside(runs, arm, name) for name in COLUMNS), said])} |")
    return "\n".join(lines)
