"""Offline to online: a run that goes on from another run's policy and critics, beside one that begins with critics of its own.

**Setting.** Pendulum-v1. Each seed learns offline from `gimbal/pendulum/medium-v0` by the recipe `iql` or `td3_bc` (2,000 moves, at
1e-3), then acts for 2,500 steps, one move each, half of every minibatch from the data. Both arms of a method go on from the first
run's policy: *carried* with its critics too (`update.begin_from`), *fresh* with new ones. IQL goes on as it is, TD3+BC without
imitation and with noise of a tenth. `soon` is the mean of the returns after 250 and 500 steps (20 held-out episodes each, by the mode
of the policy), `end` that after 2,500.

**Rates.** Each arm at the best of 3e-4, 1e-3 and 3e-3, one for policy and critics of the second run, by the mean of `soon` and `end`
of one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds
(exact, 96.8 %: the third from either end), lies above 0. *Critics carried over help right after the switch* by `soon`, *in the end* by
`end`, of each method.

**Limits.** One task, one data set, two methods, few steps. Optimisers begin anew in both arms. No arm waits with the policy until its
new critics have learned (`update.burn_in` of TD3 does): *fresh* moves the policy at once by critics that know nothing. All arms but
*iql fresh* have chosen the largest rate; larger ones were not tried.

Written before its runs, after pilots of seed 100 at 1e-3, before the switch and after 100, 250, 500, 1,000 and 2,500 steps: *iql
carried* -447, then -447, -361, -473, -637, -426; *iql fresh* -447, -577, -1013, -697, -510; *td3 carried* -302, then -302, -895, -299,
-254, -217; *td3 fresh* -302, -1294, -956, -775, -156.

    python claims/carried.py       # goes on from claims/carried.json; about eight minutes of one core
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.environments.minari import Minari
from gimbal.learning.updates.off_policy import Explore
from gimbal.learning.updates.td3 import TD3
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

DATA = "gimbal/pendulum/medium-v0"
RECORD = Path(__file__).with_suffix(".json")
ARMS = ("iql carried", "iql fresh", "td3 carried", "td3 fresh")
TUNED = campaign.Tuned(ARMS, (3e-4, 1e-3, 3e-3), (0, 1, 2, 3, 4), "return")
COMPARED = {
    f"{name}: critics carried over help {when}": (f"{name} carried", f"{name} fresh", figure)
    for name in ("iql", "td3")
    for when, figure in (("right after the switch", "soon"), ("in the end", "end"))
}
MOVES = 2_000  # of the first run, at the recipe's rate
SOON, STEPS = (250, 500), 2_500  # steps of the environment after which the figures are taken

Job = tuple[str, float, int]  # arm, learning rate, seed


def offline(name: str, seed: int) -> UpdateRun:
    run = recipes.load({"iql": "iql", "td3": "td3_bc"}[name])
    assert isinstance(run, UpdateRun)
    store = replace(run.store, moves=250)
    return replace(run, tasks=Minari(dataset=DATA), store=store, steps=MOVES // 250, seed=seed, threads=1)


def online(arm: str, rate: float, seed: int, begins: Path) -> UpdateRun:
    """Goes on from the checkpoint of the first run: with its policy, and with its critics too unless they are *fresh*."""
    name, _, critics = arm.partition(" ")
    run = offline(name, seed)
    update = run.update
    rates = replace(update.optimization, learning_rate=rate, critic_learning_rate=rate)
    update = replace(update, optimization=rates, begin_from=str(begins) if critics == "carried" else "")
    if isinstance(update, TD3):
        update = replace(update, imitation=None, explore=Explore(first=0.1, last=0.1, over=0))
    return replace(
        run,
        policy=run.policy.at(begins / "model"),
        update=update,
        tasks=Gymnasium(environment="Pendulum-v1"),
        engine=Episodes(slots=1, segment=10),
        store=Transitions(capacity=100_000, minibatch=128, prior=Minari(dataset=DATA)),
        steps=STEPS // 10,
    )


def trained(run: UpdateRun, where: Path) -> tuple[Path, float]:
    """The checkpoint of the first run, and its return."""
    trainer = Trainer(run)
    trainer.begin()
    for _ in range(run.steps):
        trainer.advance()
    saved, figure = trainer.save(where, {}), score(trainer)
    trainer.close()
    return saved, figure


def score(trainer: Trainer) -> float:
    return trainer.evaluate().metrics()["eval/greedy_score"]


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    start = time.process_time()
    with tempfile.TemporaryDirectory() as home:
        begins, before = trained(offline(arm.split()[0], seed), Path(home))
        trainer = Trainer(online(arm, rate, seed, begins))
        trainer.begin()
        curve = []
        for steps in (*SOON, STEPS):
            campaign.interacted(trainer, steps)
            curve.append(score(trainer))
        trainer.close()
    soon, end = statistics.fmean(curve[:-1]), curve[-1]
    figures = {"before": before, "soon": soon, "end": end, "return": (soon + end) / 2}
    found = {"arm": arm, "rate": rate, "seed": seed, **{name: round(x, 1) for name, x in figures.items()}}
    return found | {"cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
