"""The section of claims/README.md on a claim whose arms are tuned and then compared by one figure; page.py writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import campaign
from offline_page import held, shown, spread

Runs = Sequence[dict[str, Any]]
VOID = "void"  # by the claim's rule these runs do not answer the question, whatever the difference


class Arms(Protocol):
    TUNED: campaign.Tuned


class Claim(Arms, Protocol):
    """What a module of such a claim has."""

    __doc__: str | None
    __name__: str
    COMPARED: Mapping[str, tuple[str, ...]]  # two arms, and a figure where it is not the tuned one


def section(claim: Claim, title: str, figures: Mapping[str, str], runs: Runs, void: Collection[str] = ()) -> str:
    """``figures``: the heads of columns, and what each run records under them. ``void``: questions that its rule takes back."""
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
            rule(claim, runs, void),
            "",
        ]
    )


def table(claim: Arms, figures: Mapping[str, str], runs: Runs) -> str:
    tuned = claim.TUNED
    heads = ["arm", f"tuning: {tuned.figure} at each rate", "rate", *figures]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in tuned.arms:
        own = tuned.fresh(runs, arm)
        tried = [f"{at:g}: {run[tuned.figure]}" for at, run in tuned.tried(runs, arm).items()]
        cells = [", ".join(tried), tuned.chosen(runs, arm)]
        cells += [spread([run[name] for run in own if name in run]) for name in figures.values()]
        lines.append(f"| *{arm}* | {' | '.join(cells)} |")
    return "\n".join(lines)


def rule(claim: Claim, runs: Runs, void: Collection[str] = ()) -> str:
    lines = ["| question | difference | holds |", "| --- " * 3 + "|"]
    for name, (one, other, *figure) in claim.COMPARED.items():
        apart = claim.TUNED.above(runs, one, other, *figure)
        said = VOID if name in void else held(apart)
        lines.append(f"| {name}: *{one}* above *{other}* | {shown(apart)} | {said} |")
    return "\n".join(lines)
