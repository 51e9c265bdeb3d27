"""The section of claims/README.md on few_steps.py; page.py writes it."""

from __future__ import annotations

import few_steps as claim
from offline_page import shown, spread

FIGURES = ("energy", "classes", "coverage", "distance")


def section(runs: claim.Runs) -> str:
    about = "\n\n".join((claim.__doc__ or "").split("\n\n")[1:-1])
    whole = len(claim.SEEDS) * (2 * len(claim.FEW) + 1)
    lines = [
        "## Samplers of few steps (`few_steps.py`)",
        "",
        about,
        "",
        f"{len(runs)} of {whole} runs are recorded.",
        "",
    ]
    heads = ["arm", "steps", *FIGURES, "apart", "fake", "seconds of CPU"]
    lines += [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm, steps in [(arm, n) for n in claim.FEW for arm in (claim.BASE, claim.STUDENT)] + [(claim.BASE, claim.MANY)]:
        own = claim.own(runs, arm, steps)
        trained = ("apart", "fake", "cpu") if arm == claim.STUDENT else ()
        cells = [spread([run[name] for run in own]) for name in (*FIGURES, *trained)] + [""] * (3 - len(trained))
        lines.append(f"| *{arm}* | {steps} | {' | '.join(cells)} |")
    lines += ["", "| steps | energy above *base* in as few | coverage above it | energy above *base* in ten |"]
    lines[-1] += " distillation helps | it keeps coverage | as good as ten |"
    lines.append("| --- " * 7 + "|")
    for steps in claim.FEW:
        apart = [claim.apart(runs, steps, steps), claim.apart(runs, steps, steps, "coverage")]
        cells = [shown(found) for found in (*apart, claim.apart(runs, steps, claim.MANY))]
        lines.append(f"| {steps} | {' | '.join([*cells, *claim.verdicts(runs, steps)])} |")
    return "\n".join([*lines, ""])
