"""The section of claims/README.md on safe.py; page.py writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import safe
from offline_page import SAID, shown, spread

Runs = Sequence[dict[str, Any]]


def section(runs: Runs) -> str:
    about = "\n\n".join((safe.__doc__ or "").split("\n\n")[1:-1])
    lines = ["## A constraint kept from recorded episodes alone (`safe.py`)", "", about, ""]
    lines += [f"{len(runs)} of {len(safe.ARMS) * len(safe.SEEDS)} runs are recorded.", "", table(runs), "", rule(runs)]
    return "\n".join([*lines, "", verdict(runs), ""])


def table(runs: Runs) -> str:
    lines = ["| arm | return | cost | IoU | seconds of CPU |", "| --- " * 5 + "|"]
    for arm in safe.ARMS:
        own = [run for run in runs if run["arm"] == arm]
        cells = [spread([run[name] for run in own if name in run]) for name in ("return", "cost", "iou", "cpu")]
        lines.append(f"| *{arm}* | {' | '.join(cells)} |")
    return "\n".join(lines)


def rule(runs: Runs) -> str:
    lines = ["| part of the rule | difference | holds |", "| --- " * 3 + "|"]
    apart = {f"{figure}: *{one}* above *{other}*": (one, other, figure) for one, other, figure in safe.COMPARED}
    for name, holds in safe.conditions(runs).items():
        by = shown(safe.above(runs, *apart[name])) if name in apart else ""
        lines.append(f"| {name} | {by} | {SAID[holds]} |")
    return "\n".join(lines)


def verdict(runs: Runs) -> str:
    found = list(safe.conditions(runs).values())
    if None in found:
        return f"Verdict: open. {found.count(True)} of {len(found)} parts hold so far, {found.count(None)} lack seeds."
    return f"Verdict: **{'holds' if all(found) else 'does not hold as a whole'}**: {found.count(True)} of {len(found)} parts hold."
