"""What a disturber that pays for its force is worth: PPO under pushes of kinds that it was not trained on (arXiv:2404.14405).

**Setting.** A pendulum held upright (`environments/pushed_pendulum.py`; it begins within .1 of upright, the motor's torque is at most
2), the recipe `h_infinity`: 24 steps of ten episodes of 200 steps (48,000 steps of the environment), networks of 64 x 64. Arms:
*bounded*, the recipe: a disturber of at most 1.2 that pays .3 for its force, under the constraint; *free*, the same disturber whose
force costs nothing, and no constraint (`attenuation` = 0, no multiplier); *plain*, PPO without pushes: the same update, whose disturber
has no reach. Figure: the mean return by the mode of the last policy over three kinds of pushes in two sizes, 30 episodes each: *steady*
(torques of 1.2 and 1.35), *wave* (1.6 and 1.8) and *gust* (blows of 1.35 and 1.5). No arm is trained on any of these.

**Rates.** Each arm at the best of 3e-3, 1e-2 and 3e-2, one for policies and critics, by one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *A bounded disturber helps* if *bounded* is above *plain*; *its bound matters* if
*bounded* is above *free*.

**What the constraint does** (a fresh user's derivation and one run, seed 3): K = best - R - attenuation |d|, so without ends
of episodes the actor's advantage is A_R + multiplier / (1 + multiplier) attenuation A_|d|, about A_R whatever the multiplier; *bounded*
and *free* then differ in that the disturber pays. From step 14 on the constraint held with room to spare (gain .01 beside .3), while
the multiplier stayed near .39.

**Limits.** One task of three numbers. The attenuation is not tuned beyond the pilots (.3, 1, 3 and 5), nor the multiplier's rate, and
*free* has no rate of its own for the disturber. Returns are of two kinds, near 0 where the pendulum stays up and below -1,000 where it
falls, so a figure is mostly a share of falls. The paper's robots, forces in three dimensions and terrains are not here.

Written before its runs, after single pilots of seed 100 at 3e-3, gust 1.35: -208 *plain*, -356 *free*, -385 with attenuation 1, -76
with .3; under steady 1.4 and a wave of 2 all fell (-786 to -1,434). From any angle, instead of upright, nothing was learned in time
to compare. A first form, with the smaller size of each kind alone and the rates 1e-3, 3e-3 and 1e-2, was stopped in its tuning, after
seven runs: at 1e-2 *bounded* and *free* were near 0 (-1.6 and -23), so that nothing could be above. The larger sizes and the larger
rate were added then. A fourth arm, blows by chance in training, was left out before it had a run of this form, for want of time: in
both of its pilots from upright (blows of 1.2 from the first step on; 1e-3 and 3e-3) it fell in most episodes.

    python claims/pushed.py       # goes on from claims/pushed.json; about six minutes of one core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal import recipes
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.updates.h_infinity import HInfinity
from gimbal.recipes.papers.control.h_infinity import PUSHED
from gimbal.runtime.evaluate import evaluate_held_out
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut, UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("bounded", "free", "plain"), (3e-3, 1e-2, 3e-2), (0, 1, 2, 3, 4), "return")
COMPARED = {
    "a bounded disturber helps": ("bounded", "plain"),
    "its bound matters": ("bounded", "free"),
}
REACH = {"bounded": 1.2, "free": 1.2, "plain": 0}
KINDS = {"steady": (1.2, 1.35), "wave": (1.6, 1.8), "gust": (1.35, 1.5)}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("h_infinity")
    assert isinstance(run, UpdateRun) and isinstance(run.update, HInfinity)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    update = replace(run.update, optimization=rates)
    if arm != "bounded":
        update = replace(update, controllers={}, multiplier=0.0, attenuation=0.0 if arm == "free" else 0.3)
    tasks = Gymnasium(environment=f"{PUSHED}@reach={REACH[arm]},spread=0.1", seed=1)
    return replace(run, update=update, tasks=tasks, held_out=None, seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    arm, rate, seed = job
    trainer, start, metrics = Trainer(run_of(arm, rate, seed)), time.process_time(), {}
    trainer.begin()
    for _ in range(trainer.run.steps):
        metrics, *_ = trainer.advance()
    found = {"arm": arm, "rate": rate, "seed": seed}
    returns = {}
    for kind, sizes in KINDS.items():
        tasks = Gymnasium(environment=f"{PUSHED}@reach=0,spread=0.1", grid={kind: sizes}, seed=7, size=60)
        run = replace(trainer.run, held_out=HeldOut(tasks=tasks, samples=1, engine=Episodes(slots=60)))
        returns[kind] = round(evaluate_held_out(run, trainer.learner.policy).greedy_score, 1)
    trainer.close()
    found |= {"return": round(sum(returns.values()) / len(returns), 1), **returns}
    found |= {"trained": round(metrics["reward/mean"], 1), "push": round(metrics["push/mean"], 3)}
    return found | {"gain": round(metrics["gain"], 3), "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
