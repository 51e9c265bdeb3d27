"""The section of claims/README.md on drafter.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import drafter

from gimbal.ops.confidence import student_width

Runs = Sequence[Mapping[str, Any]]


def section(runs: Runs) -> str:
    lines = [
        "## A drafter that follows its policy (`drafter.py`)",
        "",
        "\n\n".join((drafter.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {len(drafter.SEEDS) * len(drafter.RATES)} runs are recorded; `python claims/drafter.py` goes on.",
        "",
        "| arm | seed | acceptance, first and last | passes per token | passes with drafts, last | reward |",
        "| --- " * 6 + "|",
    ]
    for run in sorted(runs, key=lambda run: (run["arm"], run["seed"])):
        shown = [f"{run[name]['first']:.2f} → {run[name]['last']:.2f}" for name in ("acceptance", "passes_per_token")]
        reward, drafting = run["reward/sevens/mean"], run["drafting_frac"]["last"]
        lines.append(
            f"| *{run['arm']}* | {run['seed']} | {' | '.join(shown)} | {drafting:.2f} | {reward['first']:.2f} → {reward['last']:.2f} |"
        )
    return "\n".join([*lines, "", verdict(runs), ""])


def verdict(runs: Runs) -> str:
    by = {(run["arm"], run["seed"]): run["acceptance"] for run in runs}
    if len(by) < len(drafter.SEEDS) * len(drafter.RATES):
        return "Runs are missing: nothing is decided yet."
    change = {arm: interval([by[arm, s]["last"] - by[arm, s]["first"] for s in drafter.SEEDS]) for arm in drafter.RATES}
    gap = interval([by["follows", s]["last"] - by["stays", s]["last"] for s in drafter.SEEDS])
    return (
        f"*A drafter that stays falls behind*: {said(change['stays'], change['stays'][2] < 0)}. "
        f"*Training keeps it up*: {said(gap, gap[1] > 0)}. "
        f"*It falls behind too*: {said(change['follows'], change['follows'][2] < 0)}."
    )


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    mean = statistics.fmean(values)
    half = statistics.stdev(values) * student_width(len(values), 0.025)
    return mean, mean - half, mean + half


def said(found: tuple[float, float, float], holds: bool) -> str:
    mean, low, high = found
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f}), **{'yes' if holds else 'not shown'}**"
