"""Words and pictures with a checklist each: does it help to learn only from rollouts on whose order both lists agree (ThinkRL-Edit)?

**Setting.** The recipe `thinkrl_pictures` (arXiv:2601.03467): gimbal-tiny answers a sum whose result is a digit, gimbal-digits draws
the digit that the answer names, and both are scored by checklists, the words by two questions and the picture by four. 20 steps of 8
tasks x 16 episodes, all settings those of `joint.py`. Arms: *chain*, the recipe, whose advantage is the rank on the longest chain of
a group in which neither list falls where the other rises, and 0 off it; *sum*, the same lists added up and normalized over the group.

**Figures** (those of `joint.py`): 128 held-out sums, 4 episodes each, sampled as in training; *after* is the share of pictures that are
real ones of the right digit by the half of the data that no run is paid by, *plan* the share of right answers, *drawn* the share of
pictures that are real ones of the digit that was asked for, whether it was right or not.

**Rule.** Each arm at the better of 1e-4 and 2e-4 for the language model, three times that for the flow, by *after* of one run of seed
100, then seeds 0 to 4. An arm is above another in a figure if the interval of the difference, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0, and below if it lies below; otherwise it is undecided.

**Limits.** Questions that programs answer, where the paper asks a large model; one task; advantages of the two arms differ in size as
well as in sign, for which each arm's rate has to make up. Both arms sit at the lower of the two rates.

Written before its runs, without a pilot.

    python claims/agreed.py       # goes on from claims/agreed.json; seven minutes of one core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import joint
import torch

from gimbal import recipes
from gimbal.advantages import GroupNormalized
from gimbal.runtime.run import Run
from gimbal.workflows.plan_and_draw import PAINTER

RECORD = Path(__file__).with_suffix(".json")
CHAIN, SUM = ARMS = ("chain", "sum")
TUNED = campaign.Tuned(arms=ARMS, rates=(1e-4, 2e-4), seeds=(0, 1, 2, 3, 4), figure="after")
COMPARED = {
    "Agreement helps the pictures": (CHAIN, SUM),
    "It helps the words": (CHAIN, SUM, "plan"),
    "It helps to draw what is asked": (CHAIN, SUM, "drawn"),
}


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.function("thinkrl_pictures")()
    painter = replace(run.separate[PAINTER], learning_rate=joint.RATIO * rate)
    run = replace(run, optimization=replace(run.optimization, learning_rate=rate), separate={PAINTER: painter})
    run = replace(run, seed=seed, held_out=None, steps=joint.STEPS)
    return replace(run, advantage=GroupNormalized()) if arm == SUM else run


def measure(job: tuple[str, float, int]) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    run, cpu = run_of(*job), time.process_time()
    words, painter, scores = joint.taught(run)
    cpu = time.process_time() - cpu
    assert painter is not None, job
    told = {"seconds": round(cpu, 1), "scores": [round(score, 3) for score in scores]}
    return {"arm": job[0], "rate": job[1], "seed": job[2], **joint.figures(run, words, painter), **told}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
