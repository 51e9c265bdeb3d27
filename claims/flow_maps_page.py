"""The section of claims/README.md on flow_maps.py; page.py writes it."""

from __future__ import annotations

import campaign
import flow_maps as claim
import tuned_page
from offline_page import shown, spread


def section(runs: campaign.Runs) -> str:
    about = "\n\n".join((claim.__doc__ or "").split("\n\n")[1:-1])
    whole = 2 * len(claim.TUNED.seeds) + claim.TUNED.whole
    lines = [
        "## Samplers of any number of steps (`flow_maps.py`)",
        "",
        about,
        "",
        f"{len(runs)} of {whole} runs are recorded.",
        "",
    ]
    lines += [tuned_page.table(claim, {"seconds of CPU": "cpu"}, runs), ""]
    heads = ["arm", *(f"{figure} in {count}" for figure in ("energy", "coverage") for count in claim.COUNTS)]
    lines += [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in (claim.BASE, claim.OWN, claim.TAUGHT, claim.SAME_RATE):
        cells = [spread([run[name] for run in claim.own(runs, arm)]) for name in heads[1:]]
        lines.append(f"| *{arm}* | {' | '.join(cells)} |")
    questions = ("distillation helps", "it halves the steps", "it keeps coverage", "own paths are better")
    lines += ["", f"| steps | {' | '.join(questions)} |", "| --- " * (len(questions) + 1) + "|"]
    for count in claim.COUNTS:
        found = [
            claim.apart(runs, count, claim.BASE, count),
            claim.apart(runs, count, claim.BASE, 2 * count) if 2 * count in claim.COUNTS else None,
            claim.apart(runs, count, claim.BASE, count, "coverage"),
            claim.apart(runs, count, claim.TAUGHT, count),
        ]
        cells = [
            "" if one is None else f"{nearer(one) if place != 2 else kept(one)}: {shown(one)}"
            for place, one in enumerate(found)
        ]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    lines += ["", "| steps | energy of *own at 2e-3* above *taught* | coverage above it |", "| --- | --- | --- |"]
    for count in claim.COUNTS:
        both = [claim.apart(runs, count, claim.TAUGHT, count, name, claim.SAME_RATE) for name in ("energy", "coverage")]
        lines.append(f"| {count} | {' | '.join(map(shown, both))} |")
    lines += [
        "",
        f"Energy falls with each doubling of the steps in {claim.falls(runs)} of {len(claim.own(runs, claim.OWN))} runs of *own*.",
        "",
    ]
    return "\n".join(lines)


def nearer(apart: tuple[float, float, float]) -> str:
    return "**yes**" if apart[2] < 0 else "**refuted**" if apart[1] > 0 else "not decided"


def kept(apart: tuple[float, float, float]) -> str:
    return "no" if apart[2] < 0 else "yes"
