"""The section of claims/README.md on gardo.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import campaign
import gardo

Runs = list[dict[str, Any]]
COLUMNS = ("proxy", "true", "coverage", "distance")


def section(runs: Runs) -> str:
    about = "\n\n".join((gardo.__doc__ or "").split("\n\n")[1:-1])
    whole = len(gardo.ARMS) * len(gardo.SEEDS) + (len(gardo.ARMS) - 1) * len(gardo.COEFS)
    lines = [
        "## A reward that can be hacked (`gardo.py`)",
        "",
        about,
        "",
        f"{len(runs)} of {whole} runs are recorded.",
        "",
    ]
    return "\n".join([*lines, table(runs), "", verdicts(runs), ""])


def table(runs: Runs) -> str:
    heads = [
        "arm",
        "coefficient",
        "seeds",
        *(f"{name}, before and after" for name in COLUMNS),
        "best true reward in training",
    ]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in gardo.ARMS:
        own = gardo.fresh(runs, arm)
        cells = [f"{spread(own, f'{name}_before')} → {spread(own, f'{name}_after')}" if own else "" for name in COLUMNS]
        tuned = ", ".join(f"{coef:g}: {true:.2f}" for coef, true in sorted(gardo.tuned(runs, arm).items()))
        coef = gardo.best(runs, arm)
        said = "" if arm == "free" else f"{campaign.chosen(coef, gardo.COEFS)} ({tuned})"
        peak = f"{statistics.median(max(run['curve']['true']) for run in own):.2f}" if own else ""
        lines.append(f"| *{arm}* | {said} | {len(own)} | {' | '.join([*cells, peak])} |")
    return "\n".join(lines)


def spread(runs: Sequence[dict[str, Any]], name: str) -> str:
    """Median (least to most)."""
    values = [run[name] for run in runs]
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def verdicts(runs: Runs) -> str:
    def said(holds: bool | None) -> str:
        return "not decided" if holds is None else "yes" if holds else "no"

    return (
        f"In brackets the true reward of the tuning runs. Hacked: **{said(gardo.hacked(runs))}**. GARDO keeps the true reward: "
        f"**{said(gardo.keeps(runs))}**. Better than a KL on all: **{said(gardo.better(runs))}**."
    )
