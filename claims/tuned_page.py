"""The section of claims/README.md on a claim whose arms are tuned and then compared by one figure; page.py writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import campaign
from offline_page import held, shown, spread

Runs = Sequence[dict[str, Any]]


class Arms(Protocol):
    TUNED: campaign.Tuned


class Claim(Arms, Protocol):
    """What a module of such a claim has."""

    __doc__: str | None
    __name__: str
    COMPARED: Mapping[str, tuple[str, ...]]  # two arms, and a figure where it is not the tuned one


def section(claim: Claim, title: str, figures: Mapping[str, str], runs: Runs) -> str:
    """``figures``: the heads of columns, and what each run records under them."""
    about = "\n\n".join((claim.__doc__ or "").split("\n\n")[1:-1])
    lines = [f"## {title} (`{claim.__name__}.py`)", "", about, ""]
    tuned = claim.TUNED
    own = [run for run in runs if run["seed"] == tuned.seed or run["rate"] == tuned.best(runs, run["arm"])]
    more = f", and {len(runs) - len(own)} more" if len(own) < len(runs) else ""
    return "\n".join(
        [
            *lines,
            f"{len(own)} of {tuned.whole} runs are recorded{more}.",
            "",
            table(claim, figures, runs),
            "",
            rule(claim, runs),
            "",
        ]
    )


def table(claim: Arms, figures: Mapping[str, str], runs: Runs) -> str:
    tuned = claim.TUNED
    heads = ["arm", f"tuning: {tuned.figure} at each rate", "rate", *figures]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in tuned.arms:
        rate, own = tuned.best(runs, arm), tuned.fresh(runs, arm)
        tried = [f"{at:g}: {run[tuned.figure]}" for at, run in tuned.tried(runs, arm).items()]
        cells = [", ".join(tried), "" if rate is None else f"{rate:g}"]
        cells += [spread([run[name] for run in own if name in run]) for name in figures.values()]
        lines.append(f"| *{arm}* | {' | '.join(cells)} |")
    return "\n".join(lines)


def rule(claim: Claim, runs: Runs) -> str:
    lines = ["| question | difference | holds |", "| --- " * 3 + "|"]
    for name, (one, other, *figure) in claim.COMPARED.items():
        apart = claim.TUNED.above(runs, one, other, *figure)
        lines.append(f"| {name}: *{one}* above *{other}* | {shown(apart)} | {held(apart)} |")
    return "\n".join(lines)
