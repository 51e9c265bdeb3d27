"""The section of claims/README.md on base_set.py; page.py writes it."""

from __future__ import annotations

import base_set as claim
from offline_page import held, shown, spread

FIGURES = ("reward", "true", "coverage")


def section(runs: claim.Runs) -> str:
    about = "\n\n".join((claim.__doc__ or "").split("\n\n")[1:-1])
    lines = ["## The base set, each beside Flow-GRPO (`base_set.py`)", "", about, ""]
    lines += [f"{len(runs)} of {claim.TUNED.whole + claim.UNTRAINED.whole} runs are recorded.", ""]
    return "\n".join([*lines, table(runs), "", verdicts(runs), ""])


def table(runs: claim.Runs) -> str:
    heads = ["arm", "tuning: true (reward) at each rate", "rate", *FIGURES, "steps", "seconds of CPU"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in (*claim.LEARNT, *claim.BASES):
        tuned, learns = claim.arms_of(arm), arm not in claim.BASES
        own = tuned.fresh(runs, arm)
        tried = [f"{at:g}: {run['true']} ({run['reward']})" for at, run in tuned.tried(runs, arm).items()]
        cells = [", ".join(tried), tuned.chosen(runs, arm)] if learns else ["", ""]
        cells += [spread([run[name] for run in own]) for name in FIGURES]
        cells += [spread([run[name] for run in own]) if learns else "" for name in ("steps", "cpu")]
        lines.append(f"| *{arm}* | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(runs: claim.Runs) -> str:
    lines = ["| question | difference | holds |", "| --- " * 3 + "|"]
    for arm, other in claim.BESIDE.items():
        for figure in FIGURES:
            apart = claim.above(runs, arm, figure)
            lines.append(f"| {figure}: *{arm}* above *{other}* | {shown(apart)} | {held(apart)} |")
    return "\n".join(lines)
