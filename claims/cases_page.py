"""The section of claims/README.md on cases.py; page.py writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cases
from offline_page import held, shown, spread

Runs = Sequence[dict[str, Any]]
FIGURES = ("right", "first", "alike", "cpu")


def section(runs: Runs) -> str:
    about = "\n\n".join((cases.__doc__ or "").split("\n\n")[1:-1])
    whole = cases.TUNED.whole + len(cases.OTHERS) * len(cases.TUNED.seeds)
    lines = ["## Which past cases to read (`cases.py`)", "", about, "", f"{len(runs)} of {whole} runs are recorded."]
    return "\n".join([*lines, "", table(runs), "", rule(runs), ""])


def table(runs: Runs) -> str:
    heads = ["arm", "tuning: right at each rate", "rate", *FIGURES[:3], "seconds of CPU"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in (*cases.TUNED.arms, *cases.OTHERS):
        tried = [f"{at:g}: {run['right']}" for at, run in cases.TUNED.tried(runs, arm).items()]
        cells = [", ".join(tried), cases.TUNED.chosen(runs, arm)]
        cells += [spread([run[name] for run in cases.fresh(list(runs), arm)]) for name in FIGURES]
        lines.append(f"| *{arm}* | {' | '.join(cells)} |")
    return "\n".join(lines)


def rule(runs: Runs) -> str:
    lines = ["| question | difference | holds |", "| --- " * 3 + "|"]
    for name, (one, other) in cases.COMPARED.items():
        apart = cases.above(list(runs), one, other)
        lines.append(f"| {name}: *{one}* above *{other}* | {shown(apart)} | {held(apart)} |")
    return "\n".join(lines)
