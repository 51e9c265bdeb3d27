"""Training among recorded cars: those that are replayed against those that react (PerlAD, arXiv:2603.14908).

**Setting.** `Merging`, made here: a lane ends in another, on which ten cars follow each other with gaps that are too small, so
that one of them must let the merging car in. 200 scenes are recorded, with a rule in the merging car. The recipe `perlad`, PPO
for 40 steps of 32 episodes, sampled actions. Arms by the cars that it trains among: *replayed*, as recorded; *reacting*, with
what a response that is fitted to the same logs says of the difference to the recorded scene; *drivers*, those who were recorded,
in scenes of their own, which no method that has only logs can do. Each is evaluated in 100 scenes among drivers that nothing was
trained on. *Off* is the return of the last five steps of training, in an arm's own world, less that among drivers.

**Rule.** Each arm at the best of 1e-3, 3e-3 and 1e-2, for policy and critic, by the return of one run of seed 100, then seeds 0
to 4. An arm is above another if the interval of the difference over all 25 pairs of seeds (exact, 96.8 %: the third from either
end) lies above 0. *Reacting cars teach more than replayed ones* if *reacting* is above *replayed*; *something is still lost* if
*drivers* is above *reacting*; *a replay misleads about itself* if *replayed* is further off than *reacting* by the size of *off*.

**Limits.** One place, one dimension, drivers who follow one rule with one wish each, a response that sees all that the rule reads
but that wish. In a replay every crash counts, also of a recorded car that drives into the merging one from behind; a replay
without these was not tried. No way is imitated, and the response is not conditioned on a plan, as the paper's is.

Written before its runs, after pilots of an earlier form of the environment (60 steps, seed 100): *replayed* 2.2 and 2.9 (1e-3 and
3e-3), *reacting* 10.5 (1e-3). Random pushes earn 2.5 among drivers. Fixed rules have there, in the replay and among reacting
cars: a bold one 9.5, 4.0 and 8.6, a usual one 6.0, 3.6 and 6.0 (150 scenes each). Measured afterwards by a fresh user, in the
environment as it is (200 scenes): random pushes 3.3 among drivers; the boldest recorded rule 9.3, 2.8 and 8.4. So PPO does not find all
that its reacting world pays, and *something is still lost* is not the response's doing alone.

    python claims/traffic.py       # goes on from claims/traffic.json; about six minutes of one core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.environments.gym import Gymnasium
from gimbal.environments.merging import Merging, response
from gimbal.recipes.papers.control.perlad import MERGING
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
WORLDS = {"reacting": MERGING, "replayed": f"{MERGING}@reacts=0", "drivers": f"{MERGING}@logs=0"}
TUNED = campaign.Tuned(tuple(WORLDS), (1e-3, 3e-3, 1e-2), (0, 1, 2, 3, 4), "return")
COMPARED = {
    "reacting cars teach more than replayed ones": ("reacting", "replayed"),
    "something is still lost": ("drivers", "reacting"),
    "a replay misleads about itself": ("replayed", "reacting", "size of off"),
}
LAST = 5  # steps of training

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.load("perlad")
    assert isinstance(run, Run)
    rates = replace(run.optimization, learning_rate=rate, critic_learning_rate=rate)
    return replace(run, tasks=Gymnasium(environment=WORLDS[arm], seed=1), optimization=rates, seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    response(Merging().logs)  # so that its seconds are nobody's
    start = time.process_time()
    trainer = Trainer(run_of(*job))
    trainer.begin()
    returns = [trainer.advance()[0]["reward/mean"] for _ in range(trainer.run.steps)]
    found = trainer.evaluate().metrics()
    trainer.close()
    own, score = sum(returns[-LAST:]) / LAST, found["eval/score"]
    figures = {"return": score, "own": own, "off": own - score, "size of off": abs(own - score)}
    figures |= {"without a crash": found["eval/success"]}
    told = {name: round(value, 2) for name, value in figures.items()}
    return {"arm": arm, "rate": rate, "seed": seed, **told, "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
