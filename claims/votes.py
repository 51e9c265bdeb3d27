"""Without labels: do rollouts that fork where the policy is uncertain, and end where its confidence falls, vote better? (ECHO's tree)

**Setting.** The demo's: ``gimbal-tiny`` on chain_sum with 3 or 4 terms of two digits, tasks that do not come again, int8 sampler,
data up to one version old, one thread. No reward reads the answer of a task: the rollouts of a group vote, and each is rewarded for
agreeing with the majority. Steps of 8 tasks, 16 rollouts each. A run ends at the first step after which it has drawn 60,000 tokens
(what all forks share counts once, pruned rollouts count); held-out pass@1, by the true answers, is measured (128 tasks, 2 samples
each) whenever they pass a fifth of that.

**Arms.** *tree*: the recipe ``echo_ttrl``, four roots a group, all rollouts that are left vote and train. *alone*: the same with
sixteen independent rollouts, which all vote and train. *ttrl*: the recipe of that name, sixteen independent rollouts vote, eight of
them train.

**Rule.** The figure of a run is the mean of its five marks. Each arm at the best of 3e-5, 1e-4 and 3e-4 by the figure of one run of
seed 100, then seeds 0 to 4. *The tree helps* if *tree* is above both others: the interval of the difference over all 25 pairs of seeds
(exact, 96.8 %: the third from either end) lies above 0. *It hurts* if *alone* is above *tree* in the same way. That the tree acts is
shown by *pruned*, the share of rollouts it gave up. *Right labels*: the share of rollouts whose group's majority is the true answer,
mean over steps; it says whether the votes of branches, which share beginnings, are worse.

**Limits.** One task set, on which the majority of the first policy is mostly right. The paper's clip by confidence and its advantage by
uncertainty are not in the recipe; its windows and limits are ours.

Written before its first run.

    python claims/votes.py --processes 1        # goes on from claims/votes.json; ten minutes of a core
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import tokens

from gimbal.recipes.papers.rewards.echo_ttrl import echo_ttrl
from gimbal.recipes.papers.rewards.ttrl import ttrl
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run
from gimbal.workflows.single import SingleTurn

RECORD = Path(__file__).with_suffix(".json")
BUDGET, MARKS, PROMPTS = 60_000, 5, 8
TREE, ALONE, TTRL = "tree", "alone", "ttrl"
TUNED = campaign.Tuned((TREE, ALONE, TTRL), (3e-5, 1e-4, 3e-4), (0, 1, 2, 3, 4), "mean")
COMPARED = {
    "the tree helps": (TREE, ALONE),
    "and beside the published sizes": (TREE, TTRL),
    "the tree hurts": (ALONE, TREE),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(job: Job) -> Run:
    arm, rate, seed = job
    run = ttrl() if arm == TTRL else echo_ttrl()
    if arm == ALONE:
        run = replace(run, workflow=SingleTurn())
    optimization = replace(run.optimization, learning_rate=rate)
    return replace(
        run, optimization=optimization, prompts_per_step=PROMPTS, held_out=None, steps=1000, seed=seed, threads=1
    )


def measure(job: Job) -> dict[str, Any]:
    trainer, right = Trainer(run_of(job)), list[float]()
    found = tokens.at_marks(trainer, BUDGET, MARKS, lambda metrics: right.append(metrics["reward/label_right/mean"]))
    pruned = trainer.pipeline.drops["rollouts/pruned"] / trainer.pipeline.generated["rollouts"]
    return {
        **dict(zip(("arm", "rate", "seed"), job, strict=True)),
        **found,
        "right": round(statistics.fmean(right), 4),
        "pruned": round(pruned, 4),
        "steps": trainer.learner.version,
    }


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
