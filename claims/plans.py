"""Plans of a cloned flow that are ranked by RL (the discriminator of RAD-2, arXiv:2604.15308).

**Setting.** The car that merges of claims/traffic.py, by plans of eight steps. A flow is cloned from the plans of 200 logs (recipe
`idql`, 8 steps of 250 moves, one flow a seed). The recipe `rad_2`: 20 steps of 4 scenes with 8 episodes each, among recorded cars that
react; evaluated in 200 scenes among drivers. Arms: *ranked*, the recipe, a softmax over 16 plans of the flow; *whole plans*, the same
with a Gaussian over plans in place of a choice; *flow*, 16 plans of the flow, any as likely as any other, nothing learned. The first
two are evaluated at their mode, as RAD-2 plays the plan that is ranked first; what they earn as they sample is beside it.

**Rule.** Each arm at the best of 1e-3, 3e-3 and 1e-2 by the return of one run of seed 100, then seeds 0 to 4. An arm is above another
if the interval of the difference over all 25 pairs of seeds (exact, 96.8 %: the third from either end) lies above 0. *Ranking beats
the generator alone* if *ranked* is above *flow*, *also as it samples* if it is by what it samples; *a choice learns faster than a plan*
if *ranked* is above *whole plans*.

**Limits.** One dimension, so a plan is a profile of pushes; 640 episodes; a generator that is not trained further, where RAD-2 also
trains it on corrected plans (claims/corrected.py); a Gaussian that begins around no push at all, and knows nothing of the logs.

Written before its runs, after pilots of seed 100 with a flow of 12 steps (100 scenes, standard error .3 to .6), at the mode and as
sampled, before and after: *ranked* 6.4, 6.3 and 8.4, 7.6 at 3e-3, and 9.0, 7.4 at 1e-2; *whole plans* 5.5, 2.5 and 7.4, 5.6 at 3e-3;
*ranked* with one step of each plan played in place of four 7.9, 6.9 and 9.5, 7.9 at 3e-3, which does not speak for latched plans here
and takes half as long again, so it has no arm.

    python claims/plans.py       # goes on from claims/plans.json; about five minutes of one core
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.environments.gym import Gymnasium
from gimbal.environments.merging import Merging, response
from gimbal.environments.merging_plans import AHEAD, PLANS
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.ranked import Ranked
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut, Run

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("ranked", "whole plans", "flow"), (1e-3, 3e-3, 1e-2), (0, 1, 2, 3, 4), "return")
COMPARED = {
    "ranking beats the generator alone": ("ranked", "flow"),
    "also as it samples": ("ranked", "flow", "sampled"),
    "a choice learns faster than a plan": ("ranked", "whole plans"),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int, flow: str = "") -> Run:
    run = recipes.load("rad_2")
    assert isinstance(run, Run) and isinstance(run.policy, Ranked) and isinstance(run.held_out, HeldOut)
    policy = Gaussian(observations=11, actions=AHEAD) if arm == "whole plans" else replace(run.policy, flow=flow)
    held = replace(run.held_out, tasks=Gymnasium(environment=f"{PLANS}@logs=0", seed=2, size=200))
    rates = replace(run.optimization, learning_rate=rate)
    return replace(run, policy=policy, held_out=held, optimization=rates, seed=seed, threads=1)


@cache
def flow(seed: int) -> str:
    """The directory of a flow that has cloned the plans of the logs."""
    run = recipes.load("idql", {"tasks": "gimbal/merging/plans-v0"})
    trainer = Trainer(replace(run, steps=8, seed=seed, threads=1))
    trainer.begin()
    for _ in range(8):
        trainer.advance()
    place = Path(tempfile.mkdtemp())
    trainer.policy.save(place)
    trainer.close()
    return str(place)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    place = flow(seed)
    response(Merging().logs)  # so that its seconds are nobody's
    start = time.process_time()
    trainer = Trainer(run_of(arm, rate, seed, place))
    trainer.begin()
    figures = [trainer.advance()[0] for _ in range(0 if arm == "flow" else trainer.run.steps)]
    found = trainer.evaluate().metrics()
    trainer.close()
    mode = "" if arm == "flow" else "greedy_"
    told = {"return": found[f"eval/{mode}score"], "sampled": found["eval/score"]}
    told |= {"without a crash": found[f"eval/{mode}success"]}
    told |= {"nats": figures[-1]["entropy/policy"]} if figures else {}
    cpu = round(time.process_time() - start, 1)
    return {"arm": arm, "rate": rate, "seed": seed, **{name: round(x, 2) for name, x in told.items()}, "cpu": cpu}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
