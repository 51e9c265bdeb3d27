"""A reward that is learned from twenty successes, and what keeps a policy from fooling it (SERL, arXiv:2401.16013; VICE, 1805.11686).

**Setting.** The recipe `serl`: a point goes to its dock from the left and shall stay there, 40 steps an episode; RLPD with 20
demonstrations of about ten steps, which end in the dock and come from the left alone; 2,000 steps of the environment, one move of the
weights each. Arms: *online*, the recipe, whose classifier learns the last observations of the demonstrations as successes, and a
quarter of its failures from what the policy visits (`update.online` is the share of steps whose next observation is one, half of them,
and half of a minibatch is recorded); *recorded*, the same with failures of the demonstrations alone.

**Figures.** *return*, the steps in the dock (of 40, of which some ten are needed to come there), the mean of 20 held-out episodes by
the mode of the last policy; *success*, the share of them that end in the dock. Over the last 50 of 200 learner steps: *paid*, the
share of training steps that the classifier paid, and *docked*, the share that was in the dock.

**Rates.** Each arm at the better of 1e-3 and 3e-3 (policy and critics; the classifier keeps 1e-3), by the *return* of one run of seed
100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their returns, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0; below it, the question is refuted. *What the policy visits has to be learned as
failures*: *online* above *recorded*.

**Limits.** One task, made for it: all demonstrations come from one side, so that all beyond the dock looks like a success to who has
seen them alone. Observations are six numbers, where SERL has pictures and features of a pretrained network; nothing physical. The
classifier's settings were not tuned.

Written before its runs, after single pilots of seed 100, 1e-3 and 1,600 steps: 27.8 of 40 steps in the dock with *online*, 4.8 with
*recorded* (which paid all ten steps of the last segment), 13.3 by the environment's own reward. A third arm, by that reward, was taken
out for time after the four tuning runs of these two and before any run of its own had ended: what a learned reward costs is not asked.

Seen after the runs: one seed of *online* has 0, whose policy docks as it is sampled and not by its mode.

    python claims/classified.py       # goes on from claims/classified.json; about five minutes of one idle core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import torch

from gimbal import recipes
from gimbal.learning.updates.classified_reward import ClassifiedReward
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("online", "recorded"), (1e-3, 3e-3), (0, 1, 2, 3, 4), "return")
COMPARED = {"What the policy visits has to be learned as failures": ("online", "recorded")}
STEPS, LAST, EACH = 200, 50, 10  # learner steps, those that are looked at, and steps of the environment in each

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("serl")
    assert isinstance(run, UpdateRun) and isinstance(run.update, ClassifiedReward)
    inside = run.update.inside
    rates = replace(inside.optimization, learning_rate=rate, critic_learning_rate=rate)
    inside = replace(inside, optimization=rates)
    update = replace(run.update, inside=inside, online=0.0 if arm == "recorded" else run.update.online)
    return replace(run, update=update, seed=seed, threads=1, steps=STEPS)


def measure(job: Job) -> dict[str, Any]:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    arm, rate, seed = job
    trainer, start, told = Trainer(run_of(*job)), time.process_time(), []
    trainer.begin()
    for _ in range(STEPS):
        metrics, *_ = trainer.advance()
        told.append(metrics)
    cpu = round(time.process_time() - start, 1)
    after = trainer.evaluate().metrics()
    trainer.close()
    found = {"arm": arm, "rate": rate, "seed": seed, "return": round(after["eval/greedy_score"], 2)}
    found |= {"success": round(after["eval/greedy_success"], 3)}
    found |= {"docked": round(float(np.mean([each["reward/mean"] for each in told[-LAST:]])) / EACH, 3)}
    found |= {"paid": round(float(np.mean([each["classifier/paid"] for each in told[-LAST:]])), 3)}
    return found | {"cpu": cpu}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
