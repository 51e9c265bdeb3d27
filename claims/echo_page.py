"""The section of claims/README.md on echo.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import campaign
import echo

from gimbal.ops.confidence import student_width

Runs = Sequence[Mapping[str, Any]]


def section(runs: Runs) -> str:
    lines = [
        "## An agent that predicts its terminal (`echo.py`)",
        "",
        "\n\n".join((echo.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} runs are recorded; `python claims/echo.py` goes on.",
        "",
        "| arm | rate | seed | mean pass rate | success after | nats per observed token, first and end | calls | CPU seconds |",
        "| --- " * 8 + "|",
    ]
    order = sorted(runs, key=lambda run: (run["seed"] != echo.TUNING, run["arm"] != "grpo", run["rate"], run["seed"]))
    for run in order:
        lines.append(
            f"| *{run['arm']}* | {run['rate']:g} | {run['seed']} | {run['mean']:.3f} | {run['after']:.3f} | "
            f"{run['first_nll']:.3f} → {run['nll']:.3f} | {run['calls']:.2f} | {run['cpu']:.0f} |"
        )
    return "\n".join([*lines, "", verdict(runs), ""])


def verdict(runs: Runs) -> str:
    rate = {"grpo": echo.GIVEN, "echo": echo.best(list(runs))}
    by = {(run["arm"], run["seed"]): run for run in runs if run["rate"] == rate[run["arm"]]}
    pairs = [(by["grpo", seed], by["echo", seed]) for seed in echo.SEEDS if {("grpo", seed), ("echo", seed)} <= set(by)]
    if len(pairs) < len(echo.SEEDS):
        return f"{len(pairs)} of {len(echo.SEEDS)} pairs are there: nothing is decided yet."
    works = sum(with_["nll"] < without["nll"] for without, with_ in pairs)
    return (
        f"*grpo* at {rate['grpo']:g}, *echo* at {campaign.chosen(rate['echo'], echo.RATES)}. "
        f"The loss is at work in {works} of {len(pairs)} seeds. "
        f"Mean pass rate: {compared(pairs, 'mean')}. Success after: {compared(pairs, 'after')}. "
        f"That is at a coefficient of {echo.COEFFICIENTS['echo']:g}, for a model that was never trained on observations."
    )


def compared(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], name: str) -> str:
    """The paired difference, its interval, and what the rule makes of it."""
    differences = [with_[name] - without[name] for without, with_ in pairs]
    mean = statistics.fmean(differences)
    half = statistics.stdev(differences) * student_width(len(differences), 0.025)
    decided = "**better**" if mean - half > 0 else "**worse**" if mean + half < 0 else "**not decided**"
    return f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f}) with the loss, {decided}"
