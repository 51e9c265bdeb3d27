"""Several horizons of one critic beside one: target decoupling on CartPole (arXiv:2604.13517).

**Setting.** CartPole-v1, 36 steps of 16 episodes. *several*: the recipe ``cartpole_horizons``; its critic learns the discounts .5, .9,
.99 and .999, and the advantage is of .999 alone. *one*: the same with a critic of .999 alone. *shorter*: the recipe ``cartpole``, whose
one discount is .99. Policy and critic share no layers, so other horizons can only help what the critic learns.

**Figure.** The mean of the greedy returns (20 held-out episodes) after 6, 12, 18, 24, 30 and 36 steps: how fast and how steadily it
learns, since each ends near 500. ``last`` is the return after the last step, ``explained`` the explained variance of the values of
the long horizon, in the mean of the second half of the steps.

**Rates.** Each arm at the best of 1e-3, 2e-3 and 4e-3, one for policy and critic, by one run of seed 100.

**Rule.** Seeds 0 to 4. *Several horizons help* if the interval of the difference to *one*, over all 25 pairs of seeds (exact, 96.8 %:
the third from either end), lies above 0. The difference to *shorter* is shown and decides nothing: it has another target.

**Limits.** One easy task. The paper's point is an agent that gives up a short reward for a far landing; in CartPole all horizons want
the same. The two arms that are compared chose the least of the rates. The paper's weighting of horizons by attention, which it finds
to be gamed, is not built.

Written before its runs. Seconds are in the record but not shown: the targets of four horizons took most of those of *several*, and are
computed twenty times as fast since (docs/log.md).

    python claims/horizons.py       # goes on from claims/horizons.json; about ten minutes of one idle core
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.critics.mlp import ValueMLP
from gimbal.objectives import EntropyBonus, ValueLoss
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("several", "one", "shorter"), (1e-3, 2e-3, 4e-3), (0, 1, 2, 3, 4), "learned")
COMPARED = {"several horizons help": ("several", "one"), "besides: above a shorter horizon": ("several", "shorter")}
EVERY = 6  # steps between two evaluations

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.load("cartpole" if arm == "shorter" else "cartpole_horizons")
    assert isinstance(run, Run)
    rates = replace(run.optimization, learning_rate=rate, critic_learning_rate=rate)
    run = replace(run, optimization=rates, seed=seed, threads=1)
    if arm == "one":
        loss, critic = (ValueLoss(coef=0.5), EntropyBonus(coef=0.01)), ValueMLP(observations=4, scale=10.0)
        run = replace(run, regularisers=loss, critic=critic)
    return run


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    trainer = Trainer(run := run_of(*job))
    trainer.begin()
    curve, explained, cpu = [], [], 0.0
    for step in range(1, run.steps + 1):
        start = time.process_time()
        metrics, *_ = trainer.advance()
        cpu += time.process_time() - start
        explained.append(metrics["value/explained"])
        if step % EVERY == 0:
            curve.append(round(trainer.evaluate().metrics()["eval/greedy_score"], 1))
    trainer.close()
    found = {"arm": arm, "rate": rate, "seed": seed, "learned": round(statistics.mean(curve), 1), "last": curve[-1]}
    late = statistics.mean(explained[len(explained) // 2 :])
    return {**found, "explained": round(late, 3), "cpu": round(cpu, 1), "curve": curve}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
