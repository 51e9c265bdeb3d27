"""The section of claims/README.md on control.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import control

Runs = Sequence[Mapping[str, Any]]


def section(runs: Runs) -> str:
    whole = len(control.BARS) * len(control.SEEDS)
    lines = [
        "## Classic control (`control.py`)",
        "",
        "\n\n".join((control.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {whole} runs are recorded.",
        "",
        "| bar | steps | returns by seed | median | worst | seconds, median and most | load | verdict |",
        "| --- " * 8 + "|",
    ]
    for name, bar in control.BARS.items():
        own = sorted((run for run in runs if run["bar"] == name), key=lambda run: run["seed"])
        if not own:
            lines.append(f"| {name} | | | | | | | not run |")
            continue
        returns, seconds = [run["return"] for run in own], [run["seconds"] for run in own]
        steps = f"{max(run['env_steps'] for run in own):,}"
        figures = (
            f"{', '.join(f'{value:.0f}' for value in returns)} | {statistics.median(returns):.0f} | {min(returns):.0f}"
        )
        times = f"{statistics.median(seconds):.0f}, {max(seconds):.0f}"
        load = f"{min(run['load'] for run in own):.0f} to {max(run['load'] for run in own):.0f}"
        lines.append(f"| {name} | {steps} | {figures} | {times} | {load} | {verdict(bar, own)} |")
    return "\n".join([*lines, ""])


def verdict(bar: control.Bar, own: Runs) -> str:
    """By the rule, of the recorded seeds of a bar."""
    if len(own) < len(control.SEEDS):
        return f"not decided: {len(own)} of {len(control.SEEDS)} seeds"
    returns = [run["return"] for run in own]
    missed = []
    if bar.median is not None and statistics.median(returns) < bar.median:
        missed.append(f"median below {bar.median:.0f}")
    if bar.worst is not None and min(returns) < bar.worst:
        missed.append(f"worst below {bar.worst:.0f}")
    if bar.seconds is not None and max(run["seconds"] for run in own) >= bar.seconds:
        missed.append(f"not within {bar.seconds:.0f} s")
    if max(run["env_steps"] for run in own) > bar.most:
        missed.append(f"more than {bar.most:,} steps")
    return "**reached**" if not missed else "not reached: " + ", ".join(missed)
