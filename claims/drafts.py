"""Candidates in few steps, and only the best and worst of them in full: more reward for as many evaluations of the network? (Sol-RL)

**Setting.** gimbal-digits learns to draw fours by DiffusionNFT from ODE samples of ten steps, groups of 16 that train, 8 groups a
step, data one version old, a bfloat16 sampler. Arms: *plain*, the recipe `diffusion_nft`: 16 samples a group; *drafts*, the recipe
`sol_rl`: 48 candidates in six steps, of which the best and worst eight are drawn again in ten; *whole*, the same with candidates in
all ten steps, of which none is drawn again.

**Evaluations.** Of the network, at one state of one sample: a step of a sample or a draft is one. The learner noises each sample that
trains eight times; each of these counts five: one pass forward and, as two, one back, one of the old weights and one of the first.
A step of *plain* is 6,400, of *drafts* 8,704, of *whole* 8,960. What measuring draws does not count.

**Figures.** The reward, log p(4) of the classifier that the run learns from, of 200 samples by the ODE, at 50,000 evaluations: on the
line between the last step before and the first after. By the same line *true*, the share that another classifier on other data calls
a four, and *coverage*, the share of real fours with a sample nearer than their fifth neighbour. Whether drafts choose rightly is
shown by their agreement: the rank correlation of the reward of 128 drafts with that of the same samples in ten steps, at the end.

**Rule.** Each arm at the best of 1e-4, 3e-4, 1e-3 and 3e-3 by the reward of one run of seed 100, then seeds 0 to 4. An arm is
above another if the interval of the difference of their rewards, over all 25 pairs of seeds (exact, 96.8 %: the third from either end),
lies above 0. *Choosing helps* if *whole* is above *plain*; *drafts help* if *drafts* is above *plain*; *drafts do better* if *drafts*
is above *whole*. *true* and *coverage* are described, and decide nothing.

**Limits.** Drafts save steps alone: the paper draws them in FP4 besides. Evaluations count alike whatever they take; the learner has
most of them here. The reward is one that a policy can overdo, and one budget is measured.

Written before its runs, after one pilot of each of *plain*, *drafts* and *whole* at 3e-4 (seed 100), which had -0.38 after eight steps,
-0.22 and -0.21 after six. The rate of 3e-3 was added after the first 24 runs: all arms had chosen the largest of three.

**After the runs**: at equal evaluations *drafts* takes 3.3 CPU seconds more than *plain* (2.1 to 4.4), whose median is 10.9. *drafts*
above *whole* is undecided (.008; -.034 to .062), which is no sign that they are equal.

    python claims/drafts.py --processes 1       # goes on from claims/drafts.json; ten minutes of one idle core
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import evaluations
import numpy as np

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.learning.updates.forward_process import AbstractForwardProcess
from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun
from gimbal.workflows.preselected import Preselected

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("plain", "drafts", "whole"), (1e-4, 3e-4, 1e-3, 3e-3), (0, 1, 2, 3, 4), "reward")
BUDGET, PASSES, ALIKE = 50_000, 5, 128
COMPARED = {
    "choosing helps": ("whole", "plain"),
    "drafts help": ("drafts", "plain"),
    "drafts do better": ("drafts", "whole"),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("diffusion_nft" if arm == "plain" else "sol_rl")
    if arm == "whole":
        run = replace(run, workflow=replace(run.workflow, draft=run.sampling.max_length))
    optimization = replace(run.update.optimization, learning_rate=rate)
    return replace(run, update=replace(run.update, optimization=optimization), seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    trainer = Trainer(run_of(*job))
    update = trainer.run.update
    assert isinstance(update, AbstractForwardProcess)
    each = PASSES * update.draws
    found, metrics = evaluations.at(BUDGET, trainer, lambda batch: each * batch.shape[0])
    agree = agreement(trainer)
    trainer.close()
    told = {"agreement": agree, "unselected": metrics.get("drops/rollouts/unselected", 0.0)}
    return {"arm": arm, "rate": rate, "seed": seed, **found, **told}


def agreement(trainer: Trainer) -> float:
    """The rank correlation of drafts and samples, by the reward that chooses, under the last weights."""
    run, engine = trainer.run, trainer.run.engine.start(trainer.policy)
    engine.load(0, trainer.learner.policy.weights())
    short = 6 if not isinstance(run.workflow, Preselected) else run.workflow.draft
    scores = []
    for steps in (short, run.sampling.max_length):
        sampling = replace(run.sampling, max_length=steps)
        for sample in range(ALIKE):
            engine.submit(Request(group=0, task=run.tasks[0], sample=sample, sampling=sampling, seed=run.seed))
        rows = [found.rollout for _, found in sorted(drained(engine).items())]
        reward = run.rewards[1]
        assert isinstance(reward, AbstractReward)
        scores.append(np.array(reward(Group.of(0, run.tasks[0], rows)), dtype=float))
    ranks = [np.argsort(np.argsort(score)) for score in scores]
    return round(float(np.corrcoef(*ranks)[0, 1]), 4)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
