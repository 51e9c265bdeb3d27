"""What a learned correction of a frozen policy is worth: beside that policy, and beside TD3 from nothing (arXiv:1812.06298).

**Setting.** Pendulum-v1. Each seed clones `gimbal/pendulum/mixed-v0` by the recipe `bc` (2,000 moves). Arms: *base*, that policy as it
is; *residual*, the recipe on it (cloned at 1e-3), 2,500 steps of the environment, one move of the critic each after the first 100, the
first 1,000 of them without the policy; *at once*, the same without these (`burn_in` = 0); *td3*, the recipe, as many steps and moves of
the critic. Figure: the mean return of 20 held-out episodes by the mode of the last policy.

**Rates.** Each arm at the best of 3e-4, 1e-3, 3e-3 and 1e-2, one for policy and critics, by one run of seed 100; of *base* that at
which it clones.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Correcting helps* if *residual* is above *base*; *a base helps* if *residual* is
above *td3*; *the critic first* if *residual* is above *at once*. The mean size of a correction, of the largest action, is recorded.

**Limits.** One task of one dimension, a middling base, few steps. A correction of at most the bound (``policy.reach`` = 1) can undo
whatever the base does: smaller ones were worse in the pilots. *residual* and *at once* were run anew when their first ten steps got
the noise of all others, a tenth, in place of the whole bound; all verdicts stayed.

Written before its runs, after pilots of seed 100 on one base (-802): after 2,500 steps without burn-in -571 (reach .3), -833 (1); with
it -637 (.3) and -187 (1) at 1e-3, -840 and -923 at 3e-3; after 3,000 -921 (.5) and -279 (1).

    python claims/residual.py       # goes on from claims/residual.json; about six minutes of one core
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.learning.updates.td3 import TD3
from gimbal.policies.frozen_base import Residual
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("residual", "at once", "base", "td3"), (3e-4, 1e-3, 3e-3, 1e-2), (0, 1, 2, 3, 4), "return")
RECIPE = {"residual": "residual", "at once": "residual", "base": "bc", "td3": "td3"}
STEPS, MOVES, CLONED = 2_500, 2_000, 1e-3
COMPARED = {
    "correcting helps": ("residual", "base"),
    "a base helps": ("residual", "td3"),
    "the critic first": ("residual", "at once"),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int, base: str = "") -> UpdateRun:
    run = recipes.load(RECIPE[arm])
    assert isinstance(run, UpdateRun)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    run = replace(run, update=replace(run.update, optimization=rates), seed=seed, threads=1)
    if isinstance(run.policy, Residual) and isinstance(run.update, TD3):
        alone = 0 if arm == "at once" else run.update.burn_in
        run = replace(run, policy=replace(run.policy, base=base), update=replace(run.update, burn_in=alone))
    return run


def cloned(rate: float, seed: int, where: Path) -> float:
    """Clones the data, saves the policy there; its return."""
    trainer = Trainer(run_of("base", rate, seed))
    trainer.begin()
    metrics: dict[str, float] = {}
    while metrics.get("replay/moves", 0) < MOVES:
        metrics, *_ = trainer.advance()
    trainer.learner.save(where)
    figure = trainer.evaluate().metrics()["eval/greedy_score"]
    trainer.close()
    return figure


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    start = time.process_time()
    found: dict[str, Any] = {"arm": arm, "rate": rate, "seed": seed}
    with tempfile.TemporaryDirectory() as home:
        figure = 0.0 if arm == "td3" else cloned(rate if arm == "base" else CLONED, seed, Path(home))
        if arm != "base":
            trainer = Trainer(run_of(arm, rate, seed, home))
            trainer.begin()
            metrics = campaign.interacted(trainer, STEPS)
            figure = trainer.evaluate().metrics()["eval/greedy_score"]
            found |= {} if arm == "td3" else {"size": round(metrics["residual/size"], 3)}
            trainer.close()
    return {**found, "return": round(figure, 1), "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
