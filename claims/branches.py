"""Denoising paths that share their first steps: more reward for as many evaluations of the network? (BranchGRPO)

**Setting.** gimbal-digits learns to draw fours by clipped ratios on paths of ten steps (dance_sde, noise .3, nine of them sampled,
one start for a group), 8 groups of 16 a step, data one version old, a bfloat16 sampler. Arms: *branches*, the recipe `branch_grpo`: 2
roots that split in two before steps 2, 3 and 5, and the value of each node normalised over its depth; *flat*, the same trees, each
row with the group's normalised reward of its own sample; *paths*, the same without branches: 16 paths of their own, with that
advantage, which is `dance_grpo` on all steps.

**Evaluations.** Of the network, at one state of one sample: a step that the sampler takes is one. A step that trains is four: the
anchor's one, one forward and, as two, one back. A learner step of *branches* and *flat* is 3,648, of *paths* 5,888. What measuring
draws does not count.

**Figures.** The reward, log p(4) of the classifier that the run learns from, of 200 samples by the ODE, at 60,000 evaluations: on the
line between the last step before and the first after. By the same line *true*, the share that another classifier on other data calls
a four, and *coverage*, the share of real fours with a sample nearer than their fifth neighbour. *shared*, the share of the steps of
all paths that were taken over, shows the branches at work.

**Rule.** Each arm at the best of 3e-4, 1e-3 and 3e-3 by the reward of one run of seed 100, then seeds 0 to 4. An arm is above another
if the interval of the difference of their rewards, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies above
0. *Branches help* if *branches* is above *paths*; *sharing helps* if *flat* is above *paths*; *credit helps* if *branches* is above
*flat*. *true* and *coverage* are described, and decide nothing.

**Limits.** Ten steps for the published twenty, a network of 297 k parameters, one tree, no pruning. Evaluations count alike, whatever
they take. The reward is one that a policy can overdo, and one budget is measured. A rate is chosen by a single run. All arms sit at the
highest rate tried (`branches_slower.py` has them at the lowest).

Written before its runs, after three steps of *branches* (seed 0) had shown what a step costs.

    python claims/branches.py --processes 1     # goes on from claims/branches.json; ten minutes of one idle core
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import evaluations

from gimbal import recipes
from gimbal.advantages import GroupNormalized
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run
from gimbal.workflows.single import SingleTurn

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("paths", "flat", "branches"), (3e-4, 1e-3, 3e-3), (0, 1, 2, 3, 4), "reward")
BUDGET, PASSES = 60_000, 4
COMPARED = {
    "branches help": ("branches", "paths"),
    "sharing helps": ("flat", "paths"),
    "credit helps": ("branches", "flat"),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.load("branch_grpo")
    if arm != "branches":
        run = replace(run, advantage=GroupNormalized())
    if arm == "paths":
        run = replace(run, workflow=SingleTurn())
    return replace(run, optimization=replace(run.optimization, learning_rate=rate), seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    trainer = Trainer(run_of(*job))
    found, metrics = evaluations.at(BUDGET, trainer, lambda batch: PASSES * int(batch.mask_NS.sum()))
    trainer.close()
    shared = round(metrics.get("rows/shared_frac", 0.0), 4)
    return {"arm": arm, "rate": rate, "seed": seed, **found, "shared": shared}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
