"""Does a teacher that grades every token teach more per generated token than a reward for whole answers does? (on-policy distillation)

**Setting.** The demo's: ``gimbal-tiny`` on chain_sum with 3 or 4 terms of two digits, tasks that do not come again, int8 sampler,
data up to one version old, one thread. The teacher is ``gimbal-tiny-teacher``: the same model after the demo (seed 100). A run ends
at the first step after which it has drawn 60,000 tokens; held-out pass@1 is measured (128 tasks, 2 samples each) whenever they pass
a fifth of that.

**Arms.** *sampled*: the recipe ``opd``, whose advantage is minus the log-ratio to the teacher of each sampled token, with
truncated weights for the sampler. *exact*: the loss is the KL to the teacher summed over the vocabulary, which needs no weights
(``objective=ExactKL(coef=1) correction=none``, as GKD has it). *grpo*: the recipe, with the reward of its tasks and no teacher.
*grpo, as opd*: *grpo* in the sizes of ``opd``: 32 tasks x 4 rollouts, means over tokens.

**Rule.** The figure of a run is the mean of its five marks. Each arm at the best of 1e-5, 3e-5, 1e-4, 3e-4 and 1e-3 by the figure
of one run of seed 200, then seeds 0 to 4. *A teacher helps* if *sampled* is above both arms of GRPO: the interval of the
difference over all 25 pairs of seeds (exact, 96.8 %: the third from either end) lies above 0. *The whole distribution helps* if
*exact* is above *sampled*. That the teacher acts is shown by ``distillation/kl``, in the first and in the last step.

**Limits.** The teacher came from 40 steps of RL with the reward, 356,000 tokens, which are not counted: this asks what a teacher
that is there already saves, not what making one costs. Teacher and student are one model of 1 M parameters at two moments.

Written before its runs; two pilots of seed 0 with *sampled*, at 1e-4 (pass@1 .87 after 61,000 tokens) and 3e-4, came before it.
Before any fresh seed, 1e-3 was added when *sampled* had been best at 3e-4 and 1e-5 when *grpo* had been best at 3e-5, and ``opd``
got the weights, as published; its tuning runs were made anew.

    python claims/distillation.py --processes 1        # goes on from claims/distillation.json, a quarter of an hour of a core
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import tokens

from gimbal.objectives.regularisers.exact_kl import ExactKL
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.distillation.opd import opd
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
BUDGET, MARKS = 60_000, 5
SAMPLED, EXACT, GRPO, AS_OPD = "sampled", "exact", "grpo", "grpo, as opd"
TUNED = campaign.Tuned(
    (SAMPLED, EXACT, GRPO, AS_OPD), (1e-5, 3e-5, 1e-4, 3e-4, 1e-3), (0, 1, 2, 3, 4), "mean", seed=200
)
COMPARED = {
    "a teacher helps": (SAMPLED, GRPO),
    "and in the same sizes": (SAMPLED, AS_OPD),
    "the whole distribution helps": (EXACT, SAMPLED),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(job: Job) -> Run:
    arm, rate, seed = job
    run = opd()
    if arm == EXACT:
        run = replace(run, objective=ExactKL(coef=1.0), correction=None)
    if arm == AS_OPD:
        run = replace(run, advantage=grpo().advantage, reference=None, correction=None)
    if arm == GRPO:
        run = grpo()
    optimization = replace(run.optimization, learning_rate=rate)
    return replace(run, optimization=optimization, held_out=None, steps=1000, seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    trainer, apart = Trainer(run_of(job)), list[float]()

    def told(metrics: Mapping[str, float]) -> None:
        if "distillation/kl" in metrics:
            apart.append(metrics["distillation/kl"])

    found = tokens.at_marks(trainer, BUDGET, MARKS, told)
    kl = {name: round(apart[place], 4) if apart else None for name, place in (("kl_first", 0), ("kl_last", -1))}
    return {**dict(zip(("arm", "rate", "seed"), job, strict=True)), **found, **kl, "steps": trainer.learner.version}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
