"""The section of claims/README.md on turn_splits.py; page.py writes it."""

from __future__ import annotations

import campaign
import turn_splits
from offline_page import SAID, held, shown, spread

FIGURES = {
    "mixed": "mixed",
    "late": "late",
    "tokens": "tokens",
    "mixed groups per 1,000 tokens": "per_1000",
}


def section(runs: campaign.Runs) -> str:
    about = "\n\n".join((turn_splits.__doc__ or "").split("\n\n")[1:-1])
    whole = len(turn_splits.ARMS) * len(turn_splits.SEEDS)
    head = "## Splits at turns where the outcome may turn (`turn_splits.py`)"
    lines = [head, "", about, "", f"{len(runs)} of {whole} runs are recorded.", "", table(runs), "", rule(runs), ""]
    return "\n".join(lines)


def table(runs: campaign.Runs) -> str:
    """Median (least to most) of the seeds."""
    lines = [f"| arm | {' | '.join(FIGURES)} |", "| --- " * (1 + len(FIGURES)) + "|"]
    for arm in turn_splits.ARMS:
        own = turn_splits.fresh(runs, arm)
        lines.append(f"| *{arm}* | {' | '.join(spread([run[name] for run in own]) for name in FIGURES.values())} |")
    return "\n".join(lines)


def rule(runs: campaign.Runs) -> str:
    lines = ["| question | difference | holds |", "| --- " * 3 + "|"]
    for name, (one, other) in turn_splits.COMPARED.items():
        apart = turn_splits.apart(runs, one, other)
        lines.append(f"| {name}: *{one}* above *{other}* | {shown(apart)} | {held(apart)} |")
    factor = turn_splits.factor(runs)
    holds, times = (SAID[None], "") if factor is None else (SAID[factor >= turn_splits.FACTOR], f"{factor:.2f} times")
    return "\n".join([*lines, f"| half as many again for equal tokens: *trace* beside *plain* | {times} | {holds} |"])
