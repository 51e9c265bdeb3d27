"""The section of claims/README.md on closed_form.py; page.py writes it."""

from __future__ import annotations

import closed_form as claim
from offline_page import spread

FIGURES = ("length", "score / closed", "baseline / closed", "along", "error", "cpu")


def section(runs: claim.Runs) -> str:
    about = "\n\n".join((claim.__doc__ or "").split("\n\n")[1:-1])
    lines = ["## The closed form of distillation (`closed_form.py`)", "", about, ""]
    lines += [
        f"{len(runs)} of {len(claim.SEEDS) * len(claim.GUIDANCES)} runs are recorded. *length*: of the mean gradient.",
        "",
    ]
    heads = ["guidance of the teacher", *FIGURES[:-1], "seconds of CPU"]
    lines += [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for guidance in claim.GUIDANCES:
        own = claim.own(runs, guidance)
        lines.append(f"| {guidance:g} | {' | '.join(spread([run[name] for run in own]) for name in FIGURES)} |")
    return "\n".join([*lines, "", f"Verdict: {claim.verdict(runs)}.", ""])
