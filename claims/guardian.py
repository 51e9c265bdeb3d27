"""What a guard around the data adds to a stated limit, for a policy that learns in a learned world (OGSRL, arXiv:2505.16242).

**Setting.** Narrow data: the first 50 episodes of `gimbal/cart/bounds-v0` that are never out of bounds (5,000 steps of a cart that is
paid to go right, and must not go further than 1 from the middle; the wall is at 1.5). No place beyond 1 is recorded. The recipe
`ogsrl`, SAC in a learned world, for 2,000 moves by minibatches of 128, three quarters of them imagined, in branches of 5 steps. Arms:
*both*, the recipe, which pays a price where an imagined step is outside of the data and a penalty (5 at first) where a step ends out of
bounds; *limit*, the penalty alone.

**Figures**, of 50 episodes in the environment itself, by the mode of the last policy: *return*, its mean; *cost*, how many of 100 steps
end out of bounds; *value*, return - 5 cost, which is what both arms are paid for at first, without discount. Of the last 250 moves:
*outside*, the share of imagined steps outside of the data; *price* and *penalty*, where the multipliers are.

**Rates.** Each arm at the better of 1e-3 and 3e-3 (policy and critics) by the *value* of one run of seed 100.

**Rule.** Seeds 0 to 4. *The guard helps* if the interval of the difference in *value*, over all 25 pairs of seeds (exact, 96.8 %: the
third from either end), lies above 0, and is refuted if it lies below. *It keeps the bounds better* by the same rule in *kept*, which is
100 - cost.

**Where nobody states the limit** (added later; rule and code before the runs). Two more arms by the same rates and seeds: *price*, the
recipe without the penalty, and *neither*, with none of both. Neither arm is told of the bounds, which the data happen to keep.
*Unstated, the guard helps* by the same rule in *value*, and *keeps the bounds better* in *kept*. What it costs in *return* is in the
table.

**Limits.** One task of two numbers, whose world is simple, and 2,000 of the recipe's 10,000 moves. Neither the guard (degree 2, a
coverage of .95, a limit of .05 on *outside*, a first price of 1) nor the penalty is tuned, and the multipliers move eight times only.
No other rule that keeps a learned world near its data (a price where its members disagree, MOPO) is an arm. The paper's patients are
not here.

Written before its runs, after pilots at 1e-3 and 2,500 moves: a cost of 7.2 and 1.8 (seeds 100 and 101) with *limit*, of 0 and 0 with
*both*, and a return of 77.6 and 72.1, 68.9 and 72.7. Where nobody states the limit (seed 100), the price alone brought a return of 84.4
and a cost of 20.4, and neither 129.4 and 85.4. On `gimbal/pendulum/expert-v0` (no limit; seed 100) nothing was to be seen: -1,524 with
the price, -1,543 without, neither of which had learned.

What else may explain it, seen after the runs: *both* and *limit* chose unlike rates, each by one seed, and neither ever broke the
limit. *neither* is paid to leave and is outside in 85 of 100 steps, so that to keep the bounds better than it is little: *price* is
outside in 15 to 31 of 100 steps in four of five seeds, and a policy that earned nothing and never left would have a value of 0.

    python claims/guardian.py --processes 1     # goes on from claims/guardian.json; ten minutes of one idle core
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import torch
from safe import DATA, costs

from gimbal import recipes
from gimbal.environments.minari import recording
from gimbal.environments.recording import write
from gimbal.learning.updates.dyna import Dyna
from gimbal.runtime.local import Trainer
from gimbal.runtime.playing import recorded
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("both", "limit", "price", "neither"), (1e-3, 3e-3), (0, 1, 2, 3, 4), "value")
COMPARED = {
    "The guard helps": ("both", "limit"),
    "It keeps the bounds better": ("both", "limit", "kept"),
    "Unstated, the guard helps": ("price", "neither"),
    "Unstated, it keeps the bounds better": ("price", "neither", "kept"),
}
STEPS, CAREFUL, EPISODES, PENALTY = 8, 50, 50, 5.0
PRICE, LIMIT = "guard.price", "guard.penalty"
FREE = {"both": (), "limit": (PRICE,), "price": (LIMIT,), "neither": (PRICE, LIMIT)}  # what each arm is not charged for

Job = tuple[str, float, int]  # arm, learning rate, seed


def careful(place: str) -> str:
    """The data, written there: the first episodes that are never out of bounds."""
    data = recording(DATA)
    kept = [episode for episode in data.episodes if episode.cost_S is not None and not episode.cost_S.any()]
    write(replace(data, episodes=tuple(kept[:CAREFUL])), Path(place), "careful")
    return place


def run_of(arm: str, rate: float, seed: int, data: str) -> UpdateRun:
    run = recipes.load("ogsrl", {"tasks": data})
    assert isinstance(run, UpdateRun) and isinstance(run.update, Dyna) and run.update.guard is not None
    update = run.update
    rates = replace(update.inside.optimization, learning_rate=rate, critic_learning_rate=rate)
    update = replace(update, inside=replace(update.inside, optimization=rates))
    for path in FREE[arm]:  # a set that prices nothing still tells what is outside of it
        rest = {name: rule for name, rule in update.controllers.items() if name != path}
        guard = replace(update.guard, **{path.removeprefix("guard."): 0.0})
        update = replace(update, guard=guard, controllers=rest)
    return replace(run, update=update, held_out=None, seed=seed, threads=1, steps=STEPS)


def measure(job: Job) -> dict[str, Any]:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    arm, rate, seed = job
    with tempfile.TemporaryDirectory() as place:
        trainer, start, metrics = Trainer(run_of(*job, careful(place))), time.process_time(), {}
        trainer.begin()
        for _ in range(trainer.run.steps):
            metrics, *_ = trainer.advance()
        cpu = round(time.process_time() - start, 1)
        played = recorded(trainer.run, trainer.learner.policy, episodes=EPISODES, seed=0, temperature=0.0)
        trainer.close()
    earned, cost = float(np.mean(played.returns())), costs(played)
    found = {"arm": arm, "rate": rate, "seed": seed, "value": round(earned - PENALTY * cost, 2)}
    found |= {
        "return": round(earned, 2),
        "cost": cost,
        "kept": round(100 - cost, 3),
        "outside": round(metrics["guard/outside"], 3),
    }
    prices = {name: metrics[f"control/{name}"] for name in (PRICE, LIMIT) if f"control/{name}" in metrics}
    return found | {name.removeprefix("guard."): round(x, 3) for name, x in prices.items()} | {"cpu": cpu}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
