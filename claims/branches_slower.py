"""Denoising paths that share their first steps, at a rate at which no arm overdoes the reward. (BranchGRPO)

**Setting.** That of `branches.py`, with its three arms, at 3e-4: there all arms chose 3e-3, the edge of its rates, where every one
ends with a coverage near 0, so it compared how fast they overdo the reward. The base model's reward is -5.6 and its coverage of fours
0.1.

**Two readings** of each run, of 200 samples by the ODE. *Equal updates*: after 10 learner steps, which are 20 moves of the optimiser in
every arm; a step of *branches* and *flat* takes 3,648 evaluations of the network, one of *paths* 5,888. *Equal evaluations*: at 60,000
evaluations, on the line between the last step before and the first after, as in `branches.py`; these are 10 steps of *paths* and 16 of
the others. The first asks whether a tree teaches as much in a step, the second adds what it saves.

**Rule.** Seeds 5 to 9, new ones, no tuning. An arm is above another in a figure if the interval of the difference, over all 25 pairs of
seeds (exact, 96.8 %: the third from either end), lies above 0, and below if it lies below 0. At each reading an arm *helps* if its
reward is above the other's and its coverage is not below; it *trades* coverage for reward if its coverage is below. *Branches help*:
*branches* beside *paths*. *Sharing helps*: *flat* beside *paths*. *Credit helps*: *branches* beside *flat*. *shared*, the share of the
steps of all paths that were taken over, shows the branches at work. *true* is described, and decides nothing.

**Limits.** One rate for all: 3e-4 was the best of no arm in `branches.py`, and need not be the best below it. Those of `branches.py`.

Written before its runs. Known from `branches.py` are its three runs of seed 100 at 3e-4, at 60,000 evaluations: rewards of -0.83
(*paths*), -0.11 (*flat*) and -0.09 (*branches*), coverages of 0.43, 0.47 and 0.48.

**After the runs**: at equal evaluations the coverage of *branches* beside *paths* is undecided (-.016; -.104 to .050); at equal updates
it is below (-.088; -.144 to -.011).

    python claims/branches_slower.py --processes 1     # goes on from claims/branches_slower.json; five minutes of one idle core
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import branches
import campaign
import evaluations

from gimbal.runtime.local import Trainer

RECORD = Path(__file__).with_suffix(".json")
ARMS, RATE, SEEDS = branches.TUNED.arms, 3e-4, (5, 6, 7, 8, 9)
STEPS = 10
READINGS = {"equal updates": "_early", "equal evaluations": ""}  # and what the names of their figures end in
COMPARED = branches.COMPARED

Runs = Sequence[dict[str, Any]]
Job = tuple[str, int]  # arm, seed


def measure(job: Job) -> dict[str, Any]:
    arm, seed = job
    trainer = Trainer(branches.run_of(arm, RATE, seed))
    found, metrics = evaluations.at(
        branches.BUDGET, trainer, lambda batch: branches.PASSES * int(batch.mask_NS.sum()), early=STEPS
    )
    trainer.close()
    return {"arm": arm, "seed": seed, **found, "shared": round(metrics.get("rows/shared_frac", 0.0), 4)}


def left(runs: Runs) -> Iterator[list[Job]]:
    done = {(run["arm"], run["seed"]) for run in runs}
    yield [(arm, seed) for seed in SEEDS for arm in ARMS if (arm, seed) not in done]


def own(runs: Runs, arm: str) -> Runs:
    """The runs of an arm, in the order of seeds."""
    return sorted((run for run in runs if run["arm"] == arm), key=lambda run: run["seed"])


def apart(runs: Runs, one: str, other: str, figure: str) -> tuple[float, float, float] | None:
    """By how much one arm is above another, and its interval, once all seeds of both are there."""
    both = [[run[figure] for run in own(runs, arm)] for arm in (one, other)]
    return campaign.shift(*both) if all(len(values) == len(SEEDS) for values in both) else None


def verdict(runs: Runs, question: str, reading: str) -> str:
    end = READINGS[reading]
    reward, coverage = (apart(runs, *COMPARED[question], f"{name}{end}") for name in ("reward", "coverage"))
    if reward is None or coverage is None:
        return "seeds are missing"
    if reward[1] <= 0:
        return "no: less reward" if reward[2] < 0 else "not decided"
    return "trades coverage" if coverage[2] < 0 else "yes"


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
