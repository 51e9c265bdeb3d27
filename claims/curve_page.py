"""The section of claims/README.md on curve.py; page.py writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import curve
from curve import Setting

Runs = Sequence[Mapping[str, Any]]
NAMES = {
    (4, 8): "groups of 8, four updates a batch",
    (1, 8): "groups of 8, one update",
    (4, 2): "groups of 2, four updates",
}


def section(runs: Runs) -> str:
    done = len(searched(runs))
    lines = [
        "## The largest learning rate, by age (`curve.py`)",
        "",
        "\n\n".join((curve.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{done} of {len(curve.SETTINGS) * len(curve.SEEDS)} searches have ended, {len(runs)} runs.",
        "",
        table(runs),
        "",
    ]
    return "\n".join(lines)


def searched(runs: Runs) -> dict[tuple[Setting, int], float]:
    """The largest rate of each setting and seed whose search has ended."""
    first, found = curve.begin(), {}
    for setting in curve.SETTINGS:
        for seed in curve.SEEDS:
            survived = curve.of(runs, setting, seed, first)
            if survived and curve.following(survived) is None and (n := curve.largest(survived)) is not None:
                found[setting, seed] = curve.rate(n)
    return found


def points(runs: Runs, updates: int, group: int) -> list[tuple[int, float]]:
    """(age, largest rate) of a setting, all seeds."""
    return [
        (setting.age, rate)
        for (setting, _), rate in searched(runs).items()
        if (setting.updates, setting.group) == (updates, group)
    ]


def table(runs: Runs) -> str:
    """The last column is beside the rule: how much of the slope is that of the oldest data."""
    ages, oldest = [f"age {age}" for age in curve.AGES], max(curve.AGES)
    heads = ["setting", *ages, "slope", "the delayed gradient's law", f"slope without age {oldest}"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for (updates, group), name in NAMES.items():
        here = points(runs, updates, group)
        cells = [", ".join(f"{rate:.1e}" for age, rate in here if age == wanted) for wanted in curve.AGES]
        younger = fitted([(age, rate) for age, rate in here if age < oldest], len(curve.AGES) - 1)[0]
        lines.append(f"| {name} | {' | '.join([*cells, *fitted(here), younger])} |")
    return "\n".join(lines)


def fitted(here: Sequence[tuple[int, float]], ages: int = len(curve.AGES)) -> tuple[str, str]:
    """The slope with its interval, and the verdict of the rule; nothing until a seed is whole."""
    if not here or len(here) % ages:
        return "", ""
    slope, half = curve.slope(here)
    low, high = slope - half, slope + half
    verdict = "refuted" if not low <= -1 <= high else "supported" if high < 0 else "not decided"
    falls = ", falls with age" if high < 0 else ""
    return f"{slope:+.2f} ({low:+.2f} to {high:+.2f}){falls}", verdict
