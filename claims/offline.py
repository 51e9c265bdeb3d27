"""Control from recorded episodes alone: each method against behavior cloning, and against its base on the same data.

**Setting.** The recipes `bc`, `td3_bc`, `iql` and `cql`, and the bases of two of them without what holds them to the data: *td3* is
`td3_bc` without imitation, *sac* is `cql` without the penalty. (The base of IQL is behavior cloning: its limit of `beta` = 0.) The
data are made here: *pendulum*, `gimbal/pendulum/mixed-v0`, 100 episodes of Pendulum-v1 of which 40 are random, 40 medium and 20 good
(a mean return of -739). Discount .95. Every arm makes 10,000 moves by minibatches of 128 at a learning rate of 1e-3, networks of
64 x 64, seeds 1 to 5. Figure: the mean return of 20 episodes of the environment itself, by the mode of the last policy.

**Settings of the methods.** As published: CQL's weight 5 and 10 actions of each kind. Not as published: IQL takes expectile .8 and
beta 1, because rewards are not scaled to returns of 1,000; TD3+BC takes alpha 20 in place of 2.5, because returns lie far from 0
(lambda divides by their size, not by how they differ).

**Rule.** A method is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact, 96.8 %: the
third from either end), lies above 0. The claim holds for a method if it is above behavior cloning, and if its base, where it has one
besides, is not above it. It holds as a whole if it does so for all three.

**Limits.** One data set, one learning rate for all, 10,000 moves.

Written before its runs, after pilots of seed 0: IQL -516, TD3+BC -165. An earlier form of the claim had 3,000 moves and a maze beside
the pendulum. In the first maze behavior cloning arrived by itself in 5 of 5 seeds; in the second, where 11 of 600 recorded episodes
reach the goal, neither it nor IQL (5 seeds each) nor TD3+BC (3) ever arrived. The maze is out of the claim until its data tell methods
apart (docs/log.md).

    python claims/offline.py --processes 1     # goes on from claims/offline.json; half a minute of one core a run, CQL four
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch
from campaign import shift

from gimbal import recipes
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
SEEDS, STEPS = (1, 2, 3, 4, 5), 40
DATA: Mapping[str, str] = {"pendulum": "gimbal/pendulum/mixed-v0"}
ARMS = ("bc", "iql", "td3_bc", "td3", "sac", "cql")
BASE = {"td3_bc": "td3", "iql": "bc", "cql": "sac"}
OF = {"td3": "td3_bc", "sac": "cql"}  # the recipe that an arm is, without what holds it to the data
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "iql": {"update.expectile": "0.8", "update.beta": "1"},
    "td3_bc": {"update.imitation.alpha": "20"},
}
GAMMA = 0.95


def run_of(arm: str, data: str, seed: int) -> UpdateRun:
    run = recipes.load(OF.get(arm, arm), {"tasks": DATA[data], **SETTINGS.get(arm, {})})
    update = run.update if arm == "bc" else replace(run.update, gamma=GAMMA)
    if arm == "td3":
        update = replace(update, imitation=None)
    if arm == "sac":
        update = replace(update, conservative=None)
    return replace(run, update=update, steps=STEPS, seed=seed, threads=1)


def measure(job: tuple[str, str, int]) -> dict[str, Any]:
    torch.set_flush_denormal(True)
    run = run_of(*job)
    torch.set_num_threads(run.threads)
    trainer = Trainer(run)
    trainer.begin()
    start, figures = time.process_time(), []
    for _ in range(run.steps):
        metrics, *_ = trainer.advance()
        figures.append(metrics)
    cpu = time.process_time() - start
    after = trainer.evaluate().metrics()["eval/greedy_score"]
    trainer.close()
    shown = ("q/mean", "weight/clipped", "imitation/scale", "q/gap")
    last = {name: round(figures[-1][name], 4) for name in shown if name in figures[-1]}
    return {"arm": job[0], "data": job[1], "seed": job[2], "return": round(after, 3), **last, "cpu": round(cpu, 1)}


def left(runs: list[dict[str, Any]]) -> Iterable[list[tuple[str, str, int]]]:
    """All seeds of an arm before the next, the slowest arms last: what is recorded early can be compared."""
    done = {(run["arm"], run["data"], run["seed"]) for run in runs}
    jobs = [(arm, data, seed) for arms in (ARMS[:4], ARMS[4:]) for data in DATA for arm in arms for seed in SEEDS]
    return [[job for job in jobs if job not in done]]


def told(run: Mapping[str, Any]) -> str:
    return f"{run['arm']} on {run['data']}, seed {run['seed']}: {run['return']}, {run['cpu']} CPU-s"


def of(runs: Sequence[Mapping[str, Any]], arm: str, data: str) -> list[float]:
    """The figure of each seed; [] where one is missing."""
    found = [run["return"] for run in runs if (run["arm"], run["data"]) == (arm, data)]
    return found if len(found) == len(SEEDS) else []


def difference(runs: Sequence[Mapping[str, Any]], one: str, other: str, data: str) -> tuple[float, float, float] | None:
    """The median difference and its interval, once all seeds of both are there."""
    own, theirs = of(runs, one, data), of(runs, other, data)
    return shift(own, theirs) if own and theirs else None


def holds(runs: Sequence[Mapping[str, Any]], arm: str, data: str) -> bool | None:
    """None while a seed is missing."""
    over, base = difference(runs, arm, "bc", data), difference(runs, BASE[arm], arm, data)
    return None if over is None or base is None else over[1] > 0 and not base[1] > 0


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
