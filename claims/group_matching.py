"""Scores that a group normalises: is a sampler of two steps nearer to the data than with a denominator for each sample? (GNDM)

**Setting.** gimbal-digits, without classes, in two steps, as *student* of `few_steps.py`: 24 learner steps on two groups of 16 samples,
5 updates of fake and then one of the policy, one rate for both. *sample* is the recipe `dmd2`: each sample has its own time and its own
denominator. *group* is `gndm`: the samples of a group share both.

**Figures**, of 400 samples: *coverage* as in `few_steps.py`, and *nearness*, the energy distance there with a minus. *uneven*: the
deviation of the gradient norm over the last 12 learner steps, divided by its mean.

**Rule.** Each arm at the best of 1e-4, 3e-4 and 1e-3 by *nearness* of one run of seed 100, then seeds 0 to 4. *Normalising by
groups helps* if the interval of the difference in *nearness*, over all 25 pairs of seeds (exact, 96.8 %: the third from either end),
lies above 0, and is refuted if it lies below. Coverage and *uneven* are described in the same way, and decide nothing.

**Limits.** 32 samples a step: two times, where the other arm has 32. Published: on large models, with further rewards beside it.

Written before its runs; there was no pilot of *group*.

    python claims/group_matching.py --processes 1     # goes on from claims/group_matching.json; four minutes of one idle core
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import campaign
import few_steps

from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
SAMPLE, GROUP = "sample", "group"
STEPS, DENOISING, LAST = 24, 2, 12

Job = tuple[str, float, int]  # arm, learning rate, seed


TUNED = campaign.Tuned((SAMPLE, GROUP), (1e-4, 3e-4, 1e-3), (0, 1, 2, 3, 4), "nearness")
COMPARED = {
    "Normalising by groups helps": (GROUP, SAMPLE),
    "It covers more": (GROUP, SAMPLE, "coverage"),
    "Its gradients are less even": (GROUP, SAMPLE, "uneven"),
}


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    return few_steps.at_rate(DENOISING, rate, seed, by_group=arm == GROUP)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    policy, metrics, _ = few_steps.taught(run_of(*job), STEPS)
    norms = [row["grad_norm"] for row in metrics][-LAST:]
    found = few_steps.figures(few_steps.drawn(policy, few_steps.sampling_of(few_steps.STUDENT, DENOISING), seed))
    uneven = round(statistics.stdev(norms) / statistics.fmean(norms), 4)
    return {"arm": arm, "rate": rate, "seed": seed, "nearness": -found["energy"], **found, "uneven": uneven}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
