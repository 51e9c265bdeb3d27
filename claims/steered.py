"""What the choice of a frozen flow's noise is worth: DSRL beside its flow and beside SAC (arXiv:2506.15799).

**Setting.** Pendulum-v1. Each seed clones `gimbal/pendulum/mixed-v0` by the flow of the recipe `idql` (2,000 moves). Arms: *flow*, one
action of that flow, as it is; *steered*, the recipe `dsrl` on that flow (cloned at 1e-3), 2,500 steps of the environment, one move of
each network a step after the first 100; *sac*, the recipe, as many steps and moves. Figure: the mean return of 20 held-out episodes, of
the last policy's mode, and of *flow* with its own noise.

**Rates.** Each arm at the best of 3e-4, 1e-3, 3e-3 and 1e-2, one for policy and critics, by one run of seed 100; of *flow* that at
which it clones.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Steering helps* if *steered* is above *flow*; *a flow helps* if *steered* is above
*sac*. The mean of squared noise, 1 of the flow's own, is recorded: it shows that the policy has left that.

**Limits.** One task, one action dimension, a flow of middling data, one move a step (published: 20), and noise that is not held to the
flow's own.

Written before its runs, after pilots of *steered* on one flow (-944 as it is; seed 0: -836 at 1e-3 and -841 at 3e-3 after 2,000 steps,
-337 at 3e-3 after 2,400, -304 after 4,800).

    python claims/steered.py       # goes on from claims/steered.json; about six minutes of one core
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.policies.best_of import BestOf
from gimbal.policies.steered import Steered
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("steered", "flow", "sac"), (3e-4, 1e-3, 3e-3, 1e-2), (0, 1, 2, 3, 4), "return")
STEPS, MOVES, CLONED = 2_500, 2_000, 1e-3
COMPARED = {"steering helps": ("steered", "flow"), "a flow helps": ("steered", "sac")}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(recipe: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load(recipe)
    assert isinstance(run, UpdateRun)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    return replace(run, update=replace(run.update, optimization=rates), seed=seed, threads=1)


def cloned(rate: float, seed: int, where: Path) -> UpdateRun:
    """Clones the data, saves the policy there; returns the run that plays one action of its flow."""
    run = run_of("idql", rate, seed)
    trainer = Trainer(run)
    trainer.begin()
    metrics: dict[str, float] = {}
    while metrics.get("replay/moves", 0) < MOVES:
        metrics, *_ = trainer.advance()
    trainer.learner.save(where)
    trainer.close()
    assert isinstance(run.policy, BestOf)
    return replace(run, policy=replace(run.policy, model=str(where), proposals=1))


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    start = time.process_time()
    found: dict[str, Any] = {"arm": arm, "rate": rate, "seed": seed}
    with tempfile.TemporaryDirectory() as home:
        flow = None if arm == "sac" else cloned(rate if arm == "flow" else CLONED, seed, Path(home))
        if arm == "flow":
            assert flow is not None
            trainer = Trainer(flow)
            trainer.begin()
            figure = trainer.evaluate().metrics()["eval/score"]
        else:
            run = run_of("sac" if arm == "sac" else "dsrl", rate, seed)
            if arm == "steered":
                assert isinstance(run.policy, Steered)
                run = replace(run, policy=replace(run.policy, flow=home))
            trainer = Trainer(run)
            trainer.begin()
            metrics = campaign.interacted(trainer, STEPS)
            figure = trainer.evaluate().metrics()["eval/greedy_score"]
            found |= {"size": round(metrics["steer/size"], 3)} if arm == "steered" else {}
        trainer.close()
    return {**found, "return": round(figure, 1), "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
