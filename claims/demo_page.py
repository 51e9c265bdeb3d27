"""The section of claims/README.md on demo.py, and what the README says of it; page.py writes the section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import demo

Runs = Sequence[Mapping[str, Any]]
FIGURES = ("pass@1", "in eight", "greedy")


def section(runs: Runs) -> str:
    heads = ["seed", *(f"{name}, before and after" for name in FIGURES)]
    heads += ["seconds", "of the processor", "tokens", "threads", "load"]
    lines = [
        "## The demo (`demo.py`)",
        "",
        "\n\n".join((demo.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {len(demo.SEEDS)} runs are recorded.",
        "",
        f"| {' | '.join(heads)} |",
        "| --- " * len(heads) + "|",
    ]
    for run in sorted(runs, key=lambda run: run["seed"]):
        scores = " | ".join(f"{run['before'][name]:.3f} → {run['after'][name]:.3f}" for name in FIGURES)
        spent = f"{run['seconds']:.0f} | {run['cpu']:.0f} | {run['tokens']:,} | {run['threads']} | {run['load']:.1f}"
        lines.append(f"| {run['seed']} | {scores} | {spent} |")
    return "\n".join([*lines, "", f"Verdict: {verdict(runs)}.", ""])


def verdict(runs: Runs) -> str:
    """By the rule, once all seeds are recorded."""
    if {run["seed"] for run in runs} != set(demo.SEEDS):
        return f"not decided: {len(runs)} of {len(demo.SEEDS)} seeds"
    learned = sum(
        run["before"]["pass@1"] < demo.BELOW and min(run["after"]["pass@1"], run["after"]["greedy"]) > demo.ABOVE
        for run in runs
    )
    soon = sum(run["seconds"] < demo.SECONDS for run in runs)
    reached = "**reached**" if learned == soon == len(runs) else "not reached"
    return (
        f"from below {demo.BELOW} to above {demo.ABOVE} in {learned} of {len(runs)} seeds, in less than {demo.SECONDS:.0f} s in "
        f"{soon}: {reached}"
    )


def said(runs: Runs) -> str:
    """What the README says under "Measured", of all seeds."""

    def ends(of: Sequence[float], digits: int = 2) -> str:
        low, high = (f"{value:.{digits}f}" for value in (min(of), max(of)))
        return low if low == high else f"{low} - {high}"

    before, after = (
        {name: ends([run[when][name] for run in runs]) for name in FIGURES} for when in ("before", "after")
    )
    seconds, load = ends([run["seconds"] for run in runs], 0), ends([run["load"] for run in runs], 1)
    threads = " or ".join(map(str, sorted({run["threads"] for run in runs})))
    return (
        f"five seeds, held-out pass@1 from {before['pass@1']} to {after['pass@1']}, greedy from {before['greedy']} to "
        f"{after['greedy']}, in {seconds} s of training ({threads} thread{'s' * (threads != '1')}, load {load}). Before training, at "
        f"least one of eight samples is right on {before['in eight']} of the tasks."
    )
