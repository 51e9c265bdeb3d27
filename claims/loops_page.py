"""The section of claims/README.md on loops.py; page.py writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import campaign
import loops
from offline_page import held, shown, spread

Runs = Sequence[Mapping[str, Any]]
FIGURES = {"solved": "solved", "within 2": "within_2", "within 4": "within_4", "plans": "plans", "tokens": "tokens"}


def section(runs: Runs) -> str:
    lines = [
        "## Repairs and new plans (`loops.py`)",
        "",
        "\n\n".join((loops.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {len(loops.ARMS) * len(loops.SEEDS)} runs are recorded.",
        "",
        f"| arm | {' | '.join(FIGURES)} |",
        "| --- " * (1 + len(FIGURES)) + "|",
    ]
    for arm in loops.ARMS:
        cells = [spread([run[name] for run in runs if run["arm"] == arm]) for name in FIGURES.values()]
        lines.append(f"| *{arm}* | {' | '.join(cells)} |")
    return "\n".join([*lines, "", rule(runs), ""])


def rule(runs: Runs) -> str:
    lines = ["| question | difference | holds |", "| --- " * 3 + "|"]
    for question, others in loops.COMPARED.items():
        for other in others:
            apart = above(runs, other)
            lines.append(f"| {question}: *{loops.ROUTED}* above *{other}* | {shown(apart)} | {held(apart)} |")
    return "\n".join(lines)


def above(runs: Runs, other: str) -> tuple[float, float, float] | None:
    """By how much *routed* solves more than another arm, once all seeds of both are there."""
    both = [[run["solved"] for run in runs if run["arm"] == arm] for arm in (loops.ROUTED, other)]
    return campaign.shift(*both) if all(len(own) == len(loops.SEEDS) for own in both) else None
