"""The section of claims/README.md on composed.py; page.py writes it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import composed
import tokens
import tokens_page

Runs = Sequence[Mapping[str, Any]]
HEADS = (
    "arm",
    "rate",
    "reached",
    "tokens to .95",
    "seconds to .95",
    "pass@1 at its last mark",
    "trained on",
    "mixed groups per 1000",
)


PAIRS = (
    ("composed", "grpo"),
    ("composed", "demo"),
    ("mixed", "grpo"),
    ("mixed", "demo"),
    ("mixed", "composed"),
    ("composed", "trl"),
    ("mixed", "trl"),
    ("fresh", "grpo"),
    ("as trl", "fresh"),
    ("as trl", "trl"),
    ("composed", "fresh"),
    ("composed", "as trl"),
    ("mixed", "fresh"),
    ("mixed", "as trl"),
)


def section(runs: Runs) -> str:
    lines = ["## The recipe composed from what was found (`composed.py`)", "", _described(), ""]
    lines += [f"{len(runs)} of {composed.whole()} runs are recorded; `python claims/composed.py` goes on.", ""]
    lines += [
        "Tokens and seconds: median (least to most); a run that did not get there counts with what it spent. Trained on: of all.",
        "",
        f"| {' | '.join(HEADS)} |",
        "| --- " * len(HEADS) + "|",
    ]
    lines += [row for arm in composed.ARMS for row in rows(runs, arm)]
    return "\n".join([*lines, "", *(said(runs, *both) for both in PAIRS), "", *by_the_rule(runs), ""])


def _described() -> str:
    return "\n\n".join((composed.__doc__ or "").split("\n\n")[1:-1])


def rows(runs: Runs, arm: str) -> list[str]:
    """Of the fresh seeds, and of each tuning run."""
    tried = sorted((r for r in runs if r["arm"] == arm and r["seed"] == composed.TUNING), key=lambda r: r["rate"])
    found = [row(f"*{arm}*, seed {composed.TUNING}", run["rate"], [run]) for run in tried]
    rate = composed.rate_of(runs, arm)
    fresh = [run for run in runs if run["arm"] == arm and run["seed"] in composed.SEEDS and run["rate"] == rate]
    return [*found, row(f"*{arm}*", rate, fresh)] if fresh and rate is not None else found


def row(name: str, rate: float, runs: Runs) -> str:
    spent = [tokens.cost(run, composed.TARGET) for run in runs]
    there = [
        run for run in runs if run["marks"][-1][2] >= composed.TARGET
    ]  # the last mark of the others is not their end
    drawn = sum(run["marks"][-1][0] for run in there)
    ends = [run["marks"][-1][2] for run in runs]
    cells = [name, f"{rate:g}", f"{sum(one.reached for one in spent)} of {len(runs)}"]
    cells += [_spread([one.tokens for one in spent], "{:,.0f}"), _spread([one.seconds for one in spent], "{:.0f}")]
    told = there and "trained" in there[0]  # TRL's runs do not tell
    cells += [_spread(ends, "{:.3f}"), f"{sum(run['trained'] for run in there) / drawn:.2f}" if told else ""]
    cells.append(f"{1000 * sum(run['groups'] for run in there) / drawn:.2f}" if told else "")
    return f"| {' | '.join(cells)} |"


def _spread(values: Sequence[float], form: str) -> str:
    middle, least, most = (form.format(one) for one in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least} to {most})" if len(values) > 1 else middle


def said(runs: Runs, arm: str, other: str) -> str:
    found = composed.compared(runs, arm, other)
    if found is None:
        return f"*{arm}* beside *{other}*: not all seeds are recorded, so nothing is decided."
    share, time = (tokens_page.between(*one) for one in (found.tokens, found.seconds))
    return f"Beside *{other}*: *{arm}* needs {share} of its tokens and {time} of its seconds, p {found.p:.3f}."


def by_the_rule(runs: Runs) -> list[str]:
    """What the rule asks of an arm: a third of plain GRPO's tokens, a fifth of TRL's time."""
    lines = []
    for arm in ("composed", "mixed"):
        saved, faster = composed.compared(runs, arm, "grpo"), composed.compared(runs, arm, composed.TRL)
        asked = (
            ("A third of the tokens of *grpo*", saved and saved.tokens, 1 / 3),
            ("Five times as fast as TRL", faster and faster.seconds, 0.2),
        )
        for name, share, bar in asked:
            found = share and f"**{'reached' if share[0] <= bar else 'not reached'}**, {tokens_page.between(*share)}"
            lines.append(f"{name}, *{arm}*: {found or 'seeds are missing'}.")
    for arm in ("composed", "mixed"):
        both = [composed.compared(runs, arm, other) for other in ("fresh", "as trl")]
        if None not in both:
            adds = all(found is not None and found.p < 0.01 and found.tokens[0] < 1 for found in both)
            lines.append(f"*{arm}* adds to fresh data: **{'shown' if adds else 'not shown'}**.")
    return lines
