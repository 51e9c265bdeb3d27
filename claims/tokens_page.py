"""The section of claims/README.md on tokens.py; page.py writes it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import tokens

Runs = Sequence[Mapping[str, Any]]
HEADS = (
    "arm",
    "tuning",
    "pass@1 at the end",
    "reached",
    "tokens to the target",
    "tokens / plain",
    "seconds / plain",
    "p",
    "verdict",
    "mixed groups per 1000 tokens",
    "tokens trained on",
    "its own figure: least, mean, most",
)
RATES = ", ".join(f"{rate:g}" for rate in tokens.RATES)
READING = f"""Tuning: the end score of one run each at {RATES}, the best by the rule in bold. All else is of the fresh seeds at that
rate: median (least to most), or the mean of them. "Open": too many runs did not get there for an interval with ends. Mixed groups are
those whose rollouts did not all earn the same.
"""


def section(runs: Runs) -> str:
    lines = [
        "## Which rollout control saves generated tokens (`tokens.py`)",
        "",
        "\n\n".join((tokens.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{tokens.counted(runs)} of {tokens.whole()} runs are recorded; `python claims/tokens.py` goes on.",
        "",
        READING,
    ]
    for kind in tokens.KINDS:
        if table := rows(runs, kind):
            lines += [f"**{kind}**{wanted(runs, kind)}", "", table, "", verdicts(runs, kind), ""]
            lines += ["\n\n".join([*early(runs, kind), *same_rates(runs, kind)]), ""] if kind != "sparse" else []
    return "\n".join(lines)


def early(runs: Runs, kind: str) -> list[str]:
    """In how many runs *plain* is at the target before the first mark, where few tasks have been asked twice."""
    own = list(zip(tokens.fresh(runs, kind, "plain"), tokens.costs(runs, kind, "plain"), strict=True))
    count = sum(cost.reached and cost.tokens <= run["marks"][1][0] for run, cost in own)
    if not count:
        return []
    return [
        f"*plain* is at the target before its first mark in {count} of {len(own)} runs, so there its cost is interpolated, and what "
        "goes by a task's past has hardly acted yet: a verdict here says what the first steps cost."
    ]


def same_rates(runs: Runs, kind: str) -> list[str]:
    """Quotients of tokens where an arm and *plain* have all seeds at one rate, chosen or not: what the part does without the rate."""
    wanted, found = tokens.target(runs, kind), []
    for rate in tokens.RATES:
        held = {arm: tokens.at(runs, kind, arm, rate) for arm in tokens.ARMS}
        costs = {arm: [tokens.cost(run, wanted) for run in own] for arm, own in held.items() if wanted is not None}
        whole = {arm: own for arm, own in costs.items() if len(own) == len(tokens.SEEDS)}
        if plain := whole.pop("plain", None):
            each = [f"*{arm}* {between(*tokens.quotient(own, plain, 'tokens'))}" for arm, own in whole.items()]
            ended = statistics.median(run["marks"][-1][2] for run in held["plain"])
            found.append(f"at {rate:g} (*plain* ends at {ended:.3f}): {', '.join(each)}")
    if not found:
        return []
    return [
        f"At the same rate as *plain*, tokens / plain, runs of the old rule included; no verdict: {'; '.join(found)}."
    ]


def wanted(runs: Runs, kind: str) -> str:
    found = tokens.target(runs, kind)
    return "" if found is None else f": the target is {found:.3f}."


def arms(runs: Runs, kind: str) -> list[str]:
    """Those of which all rates were tried."""
    return [arm for arm in tokens.ARMS if tokens.best(runs, kind, arm) is not None]


def rows(runs: Runs, kind: str) -> str:
    names = arms(runs, kind)
    if not names:
        return ""
    lines = [f"| {' | '.join(HEADS)} |", "| --- " * len(HEADS) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join([f'*{arm}*', *figures(runs, kind, arm)])} |" for arm in names)])


def figures(runs: Runs, kind: str, arm: str) -> list[str]:
    """The cells of an arm."""
    here, tried = tokens.fresh(runs, kind, arm), tokens.tuning(runs, kind, arm)
    best, costs = tokens.best(runs, kind, arm), tokens.costs(runs, kind, arm)
    ends = {rate: run["marks"][-1][2] for rate, run in tried.items()}
    cells = [", ".join(f"**{end:.2f}**" if rate == best else f"{end:.2f}" for rate, end in ends.items())]
    if not here or not costs:
        return [*cells, *[""] * (len(HEADS) - 2)]
    cells.append(spread([run["marks"][-1][2] for run in here], "{:.3f}"))
    cells.append(f"{sum(one.reached for one in costs)} of {len(costs)}")
    cells.append(spread([one.tokens for one in costs], "{:,.0f}"))
    found = None if arm == "plain" else tokens.compared(runs, kind, arm)
    if found is None:
        cells += ["", "", "", "" if arm == "plain" else f"{len(here)} of {len(tokens.SEEDS)} seeds"]
    else:
        quotients = [between(*one) for one in (found.tokens, found.seconds)]
        cells += [
            *quotients,
            f"{found.p:.3f}",
            f"**{found.verdict}**" if found.verdict != "undecided" else found.verdict,
        ]
    drawn = [run["marks"][-1][0] for run in here]
    cells.append(f"{1000 * sum(run['groups'] for run in here) / sum(drawn):.2f}")
    cells.append(f"{sum(run['trained'] for run in here) / sum(drawn):.2f}")
    return [*cells, shown(here, tokens.ARMS[arm].shown)]


def between(middle: float, low: float, high: float, form: str = "{:.2f}") -> str:
    """With its interval, which has no lower end where it is 0, and no upper one where it is infinite."""
    ends = [form.format(end) for end in (middle, low, high)]
    if low > 0:
        return f"{ends[0]} ({ends[1]} or more)" if high == math.inf else f"{ends[0]} ({ends[1]} to {ends[2]})"
    return f"{ends[0]} (open)" if high == math.inf else f"{ends[0]} (up to {ends[2]})"


def shown(runs: Runs, metric: str) -> str:
    seen = [run["shown"] for run in runs if run["shown"]]
    if not seen:
        return f"{metric}: never"
    least, mean, most = min(s[0] for s in seen), statistics.fmean(s[1] for s in seen), max(s[2] for s in seen)
    return f"{metric}: {least:.3g}, {mean:.3g}, {most:.3g}"


def spread(values: Sequence[float], form: str) -> str:
    middle, least, most = (form.format(one) for one in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least} to {most})"


def verdicts(runs: Runs, kind: str) -> str:
    """Which arms the rule says what of."""
    asked = [arm for own, arms in tokens.STAGES if own == kind for arm in arms if arm != "plain"]
    found = {arm: tokens.compared(runs, kind, arm) for arm in asked}
    said = {word: [f"*{a}*" for a, one in found.items() if one and one.verdict == word] for word in tokens.VERDICTS}
    missing = [f"*{arm}*" for arm, one in found.items() if one is None]
    parts = [f"{word.capitalize()}: {', '.join(those) or 'none'}." for word, those in said.items()]
    return " ".join([*parts, *([f"Without all their seeds yet: {', '.join(missing)}."] if missing else [])])
