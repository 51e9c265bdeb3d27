"""A constraint kept from recorded episodes alone: FISOR against methods that ignore it, or pay for it.

**Setting.** `gimbal/cart/bounds-v0`: 500 episodes of 100 steps of a cart that is paid to go right, and must not go further than 1 from
the middle; a quarter of the drivers ignore that. From speed v it takes v^2 / 2 to stop, and the states from which the bounds can be
kept for ever are known exactly. Arms: the recipe `fisor`; *bc* and *iql* on the same data, which read no costs; *penalty*, IQL on the
same data with 5 less reward for each step that ends out of bounds (one price, not tuned, in place of a multiplier: with a limit of 0
that only rises). Every arm makes the recipe's 10,000 moves by minibatches of 128 at a learning rate of 1e-3, discount .95, networks of
64 x 64, seeds 6 to 10. IQL takes FISOR's published expectile .9 and beta 3.

**Figures.** Of 50 episodes at the mode of the last policy, begun where the bounds can be kept: the mean return, and the *cost*, how
many of 100 steps are out of bounds. Of FISOR besides: intersection over union (*IoU*) of the states it calls feasible, V_h <= 0, with
those that are, over a grid of 61 x 61 states; all states inside the bounds would have .67.

**Settings of the method.** As published but for the violation (10 in place of 25), the rates, sizes and discount above, and a Gaussian
policy that plays its mode in place of a diffusion model that plays the safest of 16 samples.

**Rule.** An arm is above another if the interval of the difference over all 25 pairs (exact, 96.8 %, the third from either end)
lies above 0. The claim holds if all of these do: the IoU is above .8 in each of 5 seeds; FISOR's worst cost is at most 1 step in 100;
*iql* has a higher cost than FISOR; FISOR's return is above that of *bc* and of *penalty*.

**Limits.** One task of two numbers, where the kept actions of a state are an interval, so that a Gaussian can take their middle; one
learning rate; a reward whose unconstrained best is out of bounds all the time. That the sign of the constraint matters is no arm here
but a test of two actions (tests/learning/test_feasibility.py).

**A first form did not hold** (25 runs, docs/log.md): 2,000 moves, violation 5 and expectile .95. The IoU was .70 to .75, behavior
cloning was as safe (a cost of 0), and so was an arm with costs turned around, where the method imitates the data. At the 10,000 moves
of the recipe that setting had an IoU of .93 and .94 but costs of 1.7 and 8.5 (seeds 101 and 102). The new setting is the best of five
there, by the cost (seeds 101 and 102; then 103 to 105): IoU .86 to .91, cost 0 to .06. Written before the runs that are recorded.

    python claims/safe.py --processes 1     # goes on from claims/safe.json; 20 to 60 seconds of one core a run
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import torch
from campaign import shift

from gimbal import recipes
from gimbal.environments.bounded_cart import EDGE, feasible, grid
from gimbal.environments.minari import recording
from gimbal.environments.recording import RecordedEpisode, Recording, write
from gimbal.learning.updates.feasibility import DANGER
from gimbal.runtime.local import Trainer
from gimbal.runtime.playing import recorded
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
DATA = "gimbal/cart/bounds-v0"
SEEDS, EPISODES, PRICE = (6, 7, 8, 9, 10), 50, 5.0
ARMS = ("fisor", "bc", "iql", "penalty")


def run_of(arm: str, seed: int, data: str = DATA) -> UpdateRun:
    recipe = "iql" if arm == "penalty" else arm
    settings = {} if recipe != "iql" else {"update.expectile": "0.9", "update.beta": "3", "update.gamma": "0.95"}
    run = recipes.load(recipe, {"tasks": data, **settings})
    return replace(run, seed=seed, threads=1, held_out=None)


def priced() -> Recording:
    """The data, with violations paid for."""

    def of(episode: RecordedEpisode) -> RecordedEpisode:
        assert episode.cost_S is not None
        return replace(episode, reward_S=episode.reward_S - PRICE * episode.cost_S[1:])

    data = recording(DATA)
    return replace(data, episodes=tuple(of(episode) for episode in data.episodes))


def measure(job: tuple[str, int]) -> dict[str, Any]:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    arm, seed = job
    with tempfile.TemporaryDirectory() as place:
        data = DATA
        if arm == "penalty":
            write(priced(), Path(place), arm)
            data = place
        trainer = Trainer(run_of(arm, seed, data))
        trainer.begin()
        start, figures = time.process_time(), {}
        for _ in range(trainer.run.steps):
            figures, *_ = trainer.advance()
        cpu = time.process_time() - start
        policy, models = trainer.learner.policy, trainer.learner.models
        played = recorded(trainer.run, policy, episodes=EPISODES, seed=0, temperature=0.0)
        found = {"arm": arm, "seed": seed, "return": round(float(np.mean(played.returns())), 3), "cost": costs(played)}
        if arm == "fisor":
            found["iou"] = overlap(models[DANGER])
        trainer.close()
    shown = ("feasible/share", "feasible/kept", "weight/mean", "weight/clipped", "danger/mean")
    last = {name: round(figures[name], 4) for name in shown if name in figures}
    return {**found, **last, "cpu": round(cpu, 1)}


def costs(played: Recording) -> float:
    """Steps of an episode that end out of bounds, on average."""
    out = [int((abs(episode.observation_SO[1:, 0]) > EDGE).sum()) for episode in played.episodes]
    return round(float(np.mean(out)), 3)


def overlap(danger: torch.nn.Module) -> float:
    """Intersection over union of the states that are called feasible, and are."""
    states = grid()
    with torch.no_grad():
        said = danger(torch.from_numpy(states).float())[:, 0].numpy() <= 0
    true = feasible(states)
    return round(float((said & true).sum() / (said | true).sum()), 4)


def left(runs: list[dict[str, Any]]) -> Iterable[list[tuple[str, int]]]:
    """All arms of a seed before the next."""
    done = {(run["arm"], run["seed"]) for run in runs}
    return [[(arm, seed) for seed in SEEDS for arm in ARMS if (arm, seed) not in done]]


def told(run: Mapping[str, Any]) -> str:
    return f"{run['arm']}, seed {run['seed']}: return {run['return']}, cost {run['cost']}, IoU {run.get('iou')}, {run['cpu']} CPU-s"


def of(runs: Sequence[Mapping[str, Any]], arm: str, figure: str) -> list[float]:
    """The figure of each seed; [] where one is missing."""
    found = [run[figure] for run in runs if run["arm"] == arm]
    return found if len(found) == len(SEEDS) else []


def above(runs: Sequence[Mapping[str, Any]], one: str, other: str, figure: str) -> tuple[float, float, float] | None:
    """The median difference and its interval, once all seeds of both are there."""
    own, theirs = of(runs, one, figure), of(runs, other, figure)
    return shift(own, theirs) if own and theirs else None


COMPARED = (
    ("iql", "fisor", "cost"),
    ("fisor", "bc", "return"),
    ("fisor", "penalty", "return"),
)


def conditions(runs: Sequence[Mapping[str, Any]]) -> dict[str, bool | None]:
    """Each part of the rule, None while a seed is missing."""
    overlaps, own = of(runs, "fisor", "iou"), of(runs, "fisor", "cost")
    found: dict[str, bool | None] = {
        "IoU above .8 in each seed": min(overlaps) > 0.8 if overlaps else None,
        "the worst cost of *fisor* at most 1": max(own) <= 1 if own else None,
    }
    for one, other, figure in COMPARED:
        apart = above(runs, one, other, figure)
        found[f"{figure}: *{one}* above *{other}*"] = None if apart is None else apart[1] > 0
    return found


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
