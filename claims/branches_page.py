"""The section of claims/README.md on paths that share their first steps; page.py writes it."""

from __future__ import annotations

import branches
from tuned_page import Runs, rule, table

FIGURES = {name: name for name in ("reward", "true", "coverage", "shared", "steps")} | {"seconds of CPU": "cpu"}


class Gentle:
    """The claim at the rate that was added."""

    TUNED, COMPARED = branches.GENTLE, branches.COMPARED


def section(runs: Runs) -> str:
    about = "\n\n".join((branches.__doc__ or "").split("\n\n")[1:-1])
    jobs = {(run["arm"], run["rate"], run["seed"]) for run in runs}
    wanted = len(jobs) + sum(len(part) for part in branches.left(list(runs)))
    lines = ["## Paths that share their first steps (`branches.py`)", "", about, ""]
    lines += [f"{len(runs)} of {wanted} runs are recorded.", ""]
    lines += [table(branches, FIGURES, runs), "", rule(branches, runs), ""]
    lines += ["At 3e-4, added:", "", table(Gentle, FIGURES, runs), "", rule(Gentle, runs), ""]
    return "\n".join(lines)
