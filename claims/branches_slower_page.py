"""The section of claims/README.md on branches_slower.py; page.py writes it."""

from __future__ import annotations

import branches_slower as claim
from offline_page import shown, spread

FIGURES = ("reward", "true", "coverage")


def section(runs: claim.Runs) -> str:
    about = "\n\n".join((claim.__doc__ or "").split("\n\n")[1:-1])
    lines = ["## Paths that share their first steps, at a slower rate (`branches_slower.py`)", "", about, ""]
    lines += [f"{len(runs)} of {len(claim.ARMS) * len(claim.SEEDS)} runs are recorded.", ""]
    return "\n".join([*lines, table(runs), "", verdicts(runs), ""])


def table(runs: claim.Runs) -> str:
    heads = ["reading", "arm", *FIGURES, "shared", "steps", "seconds of CPU"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for reading, end in claim.READINGS.items():
        for arm in claim.ARMS:
            own = claim.own(runs, arm)
            cells = [spread([run[f"{name}{end}"] for run in own]) for name in FIGURES]
            cells += [spread([run["shared"] for run in own])]
            cells += (
                [str(claim.STEPS), ""] if end else [spread([run[name] for run in own]) for name in ("steps", "cpu")]
            )
            lines.append(f"| {reading} | *{arm}* | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(runs: claim.Runs) -> str:
    lines = ["| reading | question | difference in reward | in coverage | holds |", "| --- " * 5 + "|"]
    for reading, end in claim.READINGS.items():
        for question, (one, other) in claim.COMPARED.items():
            apart = [shown(claim.apart(runs, one, other, f"{name}{end}")) for name in ("reward", "coverage")]
            said = f"{question}: *{one}* beside *{other}*"
            lines.append(f"| {reading} | {said} | {' | '.join(apart)} | {claim.verdict(runs, question, reading)} |")
    return "\n".join(lines)
