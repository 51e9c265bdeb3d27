"""The section of claims/README.md on prior.py; page.py writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import prior
from offline_page import SAID, shown, spread

Runs = Sequence[dict[str, Any]]


def section(runs: Runs) -> str:
    about = "\n\n".join((prior.__doc__ or "").split("\n\n")[1:-1])
    whole = len(prior.ARMS) * (len(prior.RATES) + len(prior.SEEDS))
    lines = ["## Recorded episodes beside one's own (`prior.py`)", "", about, ""]
    return "\n".join([*lines, f"{len(runs)} of {whole} runs are recorded.", "", table(runs), "", rule(runs), ""])


def table(runs: Runs) -> str:
    lines = ["| arm | tuning: return at each rate | rate | return | recorded, of a minibatch | seconds of CPU |"]
    lines.append("| --- " * 6 + "|")
    for arm in prior.ARMS:
        rate = prior.best(runs, arm)
        tried = sorted((run["rate"], run["return"]) for run in runs if (run["arm"], run["seed"]) == (arm, prior.TUNING))
        own = [run for run in runs if (run["arm"], run["rate"]) == (arm, rate) and run["seed"] in prior.SEEDS]
        cells = [", ".join(f"{at:g}: {value}" for at, value in tried), "" if rate is None else f"{rate:g}"]
        cells += [spread([run[name] for run in own]) for name in ("return", "prior", "cpu")]
        lines.append(f"| *{arm}* | {' | '.join(cells)} |")
    return "\n".join(lines)


def rule(runs: Runs) -> str:
    lines = ["| question | difference | holds |", "| --- " * 3 + "|"]
    for name, (one, other) in prior.COMPARED.items():
        apart = prior.above(runs, one, other)
        lines.append(
            f"| {name}: *{one}* above *{other}* | {shown(apart)} | {SAID[None if apart is None else apart[1] > 0]} |"
        )
    return "\n".join(lines)
