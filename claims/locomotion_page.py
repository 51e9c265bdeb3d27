"""The section of claims/README.md on locomotion.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import campaign
import locomotion

Runs = Sequence[Mapping[str, Any]]


def section(runs: Runs) -> str:
    whole = len(locomotion.TASKS) * len(locomotion.ARMS) * len(locomotion.SEEDS)
    lines = [
        "## SAC on MuJoCo (`locomotion.py`)",
        "",
        "\n\n".join((locomotion.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {whole} runs are recorded.",
        "",
        "| task | returns by seed, gimbal | sb3 | difference | verdict | seconds of gimbal's for one of sb3's | load |",
        "| --- " * 7 + "|",
    ]
    for task in locomotion.TASKS:
        sides = {arm: by_seed(runs, task, arm) for arm in locomotion.ARMS}
        own, theirs = sides.values()
        returns = [", ".join(f"{run['return']:.0f}" for run in side.values()) for side in sides.values()]
        paces = sorted(own[seed]["cpu"] / theirs[seed]["cpu"] for seed in own.keys() & theirs.keys())
        pace = f"{statistics.median(paces):.2f} ({paces[0]:.2f} to {paces[-1]:.2f})" if paces else ""
        loads = [run["load"] for side in sides.values() for run in side.values()]
        load = f"{min(loads):.0f} to {max(loads):.0f}" if loads else ""
        lines.append(f"| {task} | {' | '.join(returns)} | {' | '.join(verdict(own, theirs))} | {pace} | {load} |")
    return "\n".join([*lines, ""])


def by_seed(runs: Runs, task: str, arm: str) -> dict[int, Mapping[str, Any]]:
    return {
        run["seed"]: run
        for run in sorted(runs, key=lambda run: run["seed"])
        if (run["task"], run["arm"]) == (task, arm)
    }


def verdict(own: Mapping[int, Mapping[str, Any]], theirs: Mapping[int, Mapping[str, Any]]) -> tuple[str, str]:
    """The difference with its interval, and what the rule says."""
    if min(len(own), len(theirs)) < len(locomotion.SEEDS):
        return "", "not decided"
    middle, low, high = campaign.shift(*([run["return"] for run in side.values()] for side in (own, theirs)))
    said = "**gimbal above**" if low > 0 else "**gimbal below**" if high < 0 else "not told apart"
    return f"{middle:+.0f} ({low:+.0f} to {high:+.0f})", said
