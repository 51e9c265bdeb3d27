"""Do rollouts that read a rule put it into the weights, when they train as if they had not? (PolicyRollout of TriMPI)

**Setting.** 16 rules, each two digits of five under a name (``environments/rulebook.py``); a task names one, and both digits must
be right, so that an even guess is right once in 25, and always the answer of the most rules (three of 16) in .148 of the tasks.
gimbal-tiny-memory reads a rule that stands in its prompt rightly in nine of ten answers, and without it guesses. The recipe
``policy_rollout``: 16 tasks x 8 answers a step, 80 steps, data up to one version old, int8 sampler.

**Arms** differ in who reads. *none* is GRPO without rules. *half*: half of each group reads the rule, and all train by the probability
of their answer without it, in one group. *half, weighted*: *half* with each token weighed by its probability without the rule over that
with it, at most 2 (``correction=TruncatedWeight()``).

**Figures.** The share of 256 tasks answered rightly without the rule, once each, after the last step (*known*); the reward of those
that read and of those that do not, over the last ten steps (*aware*, *unaware*).

**Rule.** Each arm at the best of 1e-3, 2e-3 and 4e-3 by *known* of one run of seed 100, then seeds 0 to 4. An arm is above another if
the interval of the difference of *known* over all 25 pairs of seeds (exact, 96.8 %: the third from either end) lies above 0. *Reading
helps*: *half* is above *none*. *The weight undoes it*: *half* is above *half, weighted*.

**Limits.** A model of 105,000 weights, answers of two digits, and rules that are read one at a time; published are long policies
with images, pretraining on their text and SFT before this stage, which are left out. All arms see as many answers. There
is no arm in which all read.

Written before its runs, after pilots of seed 0: *half* at 1e-3 for 40 steps (.11 known), and at 3e-3 for 100 (.43 after 60, .31 after
90), *none* at 3e-3 (.21 after 40 to 90); and of seed 50 at 2e-3 for 80 steps: *half* .78, *half, weighted* .25.

**After the runs**: three of five runs of *half, weighted* and one of *none* end at that .148, so what a weight does may be a
collapse to one answer. The best rate of *half, weighted* is the least that was tried, and at the two others it ends at 0; lower
ones were not tried, so what the verdict on the weight holds for are these rates. Readers learn to answer without the rule and
forget to read it: their reward falls from above .9 to .56 in the median.

    python claims/rulebook.py     # goes on from claims/rulebook.json; five minutes of one idle core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.objectives.corrections.truncated_weight import TruncatedWeight
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run
from gimbal.workflows.privileged_context import PrivilegedContext

RECORD = Path(__file__).with_suffix(".json")
NONE, HALF, WEIGHTED = "none", "half", "half, weighted"
AWARE = {NONE: 0.0, HALF: 0.5, WEIGHTED: 0.5}
TUNED = campaign.Tuned(tuple(AWARE), (1e-3, 2e-3, 4e-3), (0, 1, 2, 3, 4), "known")
COMPARED = {
    "reading helps": (HALF, NONE),
    "the weight undoes it": (HALF, WEIGHTED),
}
STEPS, LAST = 80, 10

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.load("policy_rollout")
    assert isinstance(run.workflow, PrivilegedContext)
    return replace(
        run,
        workflow=replace(run.workflow, aware=AWARE[arm]),
        correction=TruncatedWeight() if arm == WEIGHTED else None,
        optimization=replace(run.optimization, learning_rate=rate),
        steps=STEPS,
        seed=seed,
        threads=1,
    )


def measure(job: Job) -> dict[str, Any]:
    trainer, rewards = Trainer(run_of(*job)), dict[str, list[float]](aware=[], unaware=[])
    begun = time.process_time()
    for _ in range(STEPS):
        metrics, *_ = trainer.advance()
        for role, own in rewards.items():
            own += [metrics[key]] if (key := f"role/{role}/reward") in metrics else []
    spent = round(time.process_time() - begun, 1)
    known = round(trainer.evaluate().metrics()["eval/score"], 4)
    trainer.close()
    last = {role: round(sum(own[-LAST:]) / LAST, 4) for role, own in rewards.items() if own}
    return {**dict(zip(("arm", "rate", "seed"), job, strict=True)), "known": known, **last, "cpu": spent}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
