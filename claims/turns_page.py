"""The section of claims/README.md on turns.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import turns

from gimbal.ops.confidence import student_width

Runs = Sequence[Mapping[str, Any]]
PAIRS = (("token", "turn"), ("token1", "turn"), ("group", "turn"), ("group", "token"), ("group", "token1"))
FIGURES = {"mean": "mean pass rate", "after": "success after"}


def section(runs: Runs) -> str:
    lines = [
        "## Credit by the turn or by the token (`turns.py`)",
        "",
        "\n\n".join((turns.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {turns.TUNED.whole} runs are recorded.",
        "",
        "| arm | rate | seed | mean pass rate | success after | spread within turns | explained by the critic | calls | CPU seconds |",
        "| --- " * 9 + "|",
    ]
    for run in sorted(runs, key=lambda run: (run["seed"] != turns.TUNED.seed, run["arm"], run["rate"], run["seed"])):
        explained = "" if run["explained"] is None else f"{run['explained']:.2f}"
        lines.append(
            f"| *{run['arm']}* | {run['rate']:g} | {run['seed']} | {run['mean']:.3f} | {run['after']:.3f} | {run['within']:.3f} | "
            f"{explained} | {run['calls']:.2f} | {run['cpu']:.0f} |"
        )
    return "\n".join([*lines, "", verdict(runs), ""])


def chosen(runs: Runs) -> dict[str, dict[int, Mapping[str, Any]]]:
    """The runs of the record of each arm, at its best rate, by seed."""
    return {arm: {run["seed"]: run for run in turns.TUNED.fresh(runs, arm)} for arm in turns.TUNED.arms}


def verdict(runs: Runs) -> str:
    by = chosen(runs)
    whole = {arm for arm, found in by.items() if len(found) == len(turns.TUNED.seeds)}
    if not whole >= {"token", "turn"}:
        short = min(len(by[arm]) for arm in ("token", "turn"))
        return f"{short} of {len(turns.TUNED.seeds)} seeds are there of *token* and *turn*: nothing is decided yet."
    acts = sum(by["turn"][seed]["within"] < 1e-6 and by["token"][seed]["within"] > 0.1 for seed in turns.TUNED.seeds)
    lines = [
        f"The mechanism acts in {acts} of {len(turns.TUNED.seeds)} seeds.",
        "",
        "| | " + " | ".join(FIGURES.values()) + " |",
    ]
    lines.append("| --- " * (1 + len(FIGURES)) + "|")
    for without, with_ in PAIRS:
        both = {without, with_} <= whole
        cells = [compared(by[without], by[with_], name) if both else "seeds are missing" for name in FIGURES]
        lines.append(f"| *{with_}* minus *{without}* | {' | '.join(cells)} |")
    return "\n".join(lines)


def compared(without: Mapping[int, Mapping[str, Any]], with_: Mapping[int, Mapping[str, Any]], name: str) -> str:
    """The paired difference, its interval, and what the rule makes of it."""
    differences = [with_[seed][name] - without[seed][name] for seed in turns.TUNED.seeds]
    mean = statistics.fmean(differences)
    half = statistics.stdev(differences) * student_width(len(differences), 0.025)
    decided = "**better**" if mean - half > 0 else "**worse**" if mean + half < 0 else "not decided"
    return f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f}), {decided}"
