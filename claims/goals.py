"""What hindsight is worth where only a reached goal pays: SAC with and without it (HER, arXiv:1707.01495).

**Setting.** `PointReach`, made here: a point in four dimensions, a goal drawn anew in each of the episodes of 30 steps, a reward of 0
within .15 of it and -1 elsewhere; a place drawn at random is within with a probability of .0002. 3,000 steps of the environment, one
move of the weights each after the first 100. Arms: *her*, the recipe (four of five steps of a minibatch with a goal of the rest of
their episode, the rule `future`); *final*, the same with the goals of the episodes' last steps; *sac*, without other goals. Figure: the
share of 50 held-out episodes that end within reach of their goal, by the mode of the last policy.

**Rates.** Each arm at the best of 3e-4, 1e-3, 3e-3, 1e-2 and 3e-2, one for policy and critics, by the return of one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Hindsight helps* if *her* is above *sac*; *the way there teaches more than its end*
if *her* is above *final*. The share of drawn steps that hindsight pays otherwise is recorded (``replay/relabelled``).

**Limits.** One task without obstacles or contacts, where every place that is reached can be wanted; SAC alone. Without hindsight the
reward is hardly met in so few steps, and that is what is asked; how many steps SAC would need is not.

**Without rewards.** Added later, before the runs of its two arms, at the same rates, seeds and steps: *gcsl*, the recipe, which
clones its own steps for goals of the rest of their episode (1,000 for each that was wanted; GCSL, arXiv:1912.06088); *4 goals*, the
same with *her*'s four of five. *Misses spoil it* if *gcsl* is above *4 goals*; *rewards are not missed* if *gcsl* is above *her*.
Pilots of seed 101: after 3,000 steps *gcsl* reaches .98, .94 and .18 of the goals (1e-3, 3e-3, 1e-2), *4 goals* .06 and cloning for
wanted goals alone none (3e-3). *4 goals* has chosen the smallest of the rates; smaller ones were not tried.

Written before its runs, after one pilot of each of *her* and *sac* (seed 100, the recipe's 1e-3): all goals reached after 3,000 steps
by *her*, none after 6,000 by *sac*. The rate of 3e-2 was added after the first 27 runs, because *final* had chosen the largest of four.

    python claims/goals.py       # goes on from claims/goals.json; about eight minutes of one core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.dataflow.replay.hindsight import Hindsight
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(
    ("her", "final", "sac", "gcsl", "4 goals"),
    (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    (0, 1, 2, 3, 4),
    "success",
    worth=lambda run: run["return"],
)
STEPS = 3_000
HINDSIGHT = {
    "her": Hindsight(),
    "final": Hindsight(strategy="final"),
    "4 goals": Hindsight(),
    "sac": None,
}
COMPARED = {
    "hindsight helps": ("her", "sac"),
    "the way there teaches more than its end": ("her", "final"),
    "misses spoil it": ("gcsl", "4 goals"),
    "rewards are not missed": ("gcsl", "her"),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("gcsl" if arm in ("gcsl", "4 goals") else "her")
    assert isinstance(run, UpdateRun) and isinstance(run.store, Transitions)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    store = replace(run.store, hindsight=HINDSIGHT.get(arm, run.store.hindsight))
    return replace(run, store=store, update=replace(run.update, optimization=rates), seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    start = time.process_time()
    trainer = Trainer(run_of(*job))
    trainer.begin()
    metrics = campaign.interacted(trainer, STEPS)
    found = trainer.evaluate().metrics()
    trainer.close()
    figures = {"success": round(found["eval/greedy_success"], 3), "return": round(found["eval/greedy_score"], 2)}
    paid = round(metrics.get("replay/relabelled", 0.0), 3)
    cpu = round(time.process_time() - start, 1)
    return {"arm": arm, "rate": rate, "seed": seed, **figures, "relabelled": paid, "cpu": cpu}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
