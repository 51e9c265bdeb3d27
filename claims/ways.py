"""Ways back in place of resets: a point goes to its dock and back, or is never asked to go back (SERL, arXiv:2401.16013).

**Setting.** The recipe `there_and_back`: SAC with hindsight, a point that moves from the left to its dock on the right, ways of at most
40 steps, one move of the weights a step. 1,200 steps of the environment in every arm. Arms: *both*, the recipe, which is reset once
and then goes there and back in turn; *forward*, the same without ways back, so that all ways lead to the dock and the next begins where
the last ended; *resets*, each way begins at a reset and leads to the dock.

**Figures.** *return*, the mean over the evaluations after 600, 800, 1,000 and 1,200 steps of the mean return of 20 held-out episodes
from resets by the mode of the policy (-40: never there; some -10: straight there); *success*, the same of the share that arrives;
*last*, the return of the last evaluation. *arrived*, the share of the ways in training that ended at their goal, and *ways*, how many
there were, say what happened.

**Rates.** Each arm at the better of 2e-3 and 5e-3 (policy and critics), by the *return* of one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their returns, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0; below it, the question is refuted. *Going back replaces resets*: *both* above
*forward*. *Resets are better still*: *resets* above *both*. *They are missed*: *resets* above *forward*.

**Limits.** One task without obstacles, a goal that is seen, one policy for both ways where SERL trains two, and hindsight, which SERL
does without and which teaches the way home from any way. Few steps: how soon it is learned is asked, not how well in the end. Two
rates.

Written before its runs, after single pilots of seed 101 by the last weights: at 3e-3 *both* arrived in no episode after 800 steps
and in all after 1,000 (return -11), at 1e-2 neither *both* nor *forward* in any after 1,000. Without hindsight (3e-3) *both* arrived in
none after 1,000, so the arms keep it. Earlier single pilots (seed 100, 3e-3) had .80 of *both* and .90 of *forward* arrive after 1,200.

    python claims/ways.py       # goes on from claims/ways.json; about six minutes of one core
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
from gimbal.environments.gym import Gymnasium
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("both", "forward", "resets"), (2e-3, 5e-3), (0, 1, 2, 3, 4), "return")
COMPARED = {
    "Going back replaces resets": ("both", "forward"),
    "Resets are better still": ("resets", "both"),
    "They are missed": ("resets", "forward"),
}
WAYS = {"both": "docking", "forward": "docking_one_way", "resets": "docking_resets"}
MARKS = (600, 800, 1000, 1200)  # steps of the environment

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("there_and_back")
    assert isinstance(run, UpdateRun) and isinstance(run.tasks, Gymnasium)
    tasks = replace(run.tasks, environment=f"gimbal.environments.there_and_back:{WAYS[arm]}")
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    return replace(run, tasks=tasks, update=replace(run.update, optimization=rates), seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    arm, rate, seed = job
    trainer, start, marks, ends = Trainer(run_of(*job)), time.process_time(), [], []
    trainer.begin()
    steps = 0.0
    for mark in MARKS:
        while steps < mark:
            metrics, *_ = trainer.advance()
            steps = metrics["env_steps"]
            ends += [metrics["reward/success/mean"]] if "reward/success/mean" in metrics else []
        marks.append(trainer.evaluate().metrics())
    trainer.close()
    found = {"arm": arm, "rate": rate, "seed": seed}
    found |= {"return": round(float(np.mean([each["eval/greedy_score"] for each in marks])), 2)}
    found |= {"success": round(float(np.mean([each["eval/greedy_success"] for each in marks])), 3)}
    found |= {"last": round(marks[-1]["eval/greedy_score"], 2), "ways": len(ends)}
    found |= {"arrived": round(float(np.mean(ends)), 3), "steps": int(steps)}
    return found | {"cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
