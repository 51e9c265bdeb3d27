"""Control from recorded episodes alone: each method against behavior cloning, and against its base on the same data.

**Setting.** The recipes `bc`, `td3_bc`, `iql` and `cql`, and the bases of two of them without what holds them to the data: *td3* is
`td3_bc` without imitation, *sac* is `cql` without the penalty. (The base of IQL is behavior cloning: its limit of `beta` = 0.) Two
data sets that are made here: *pendulum*, `gimbal/pendulum/mixed-v0`, 100 episodes of Pendulum-v1 of which 40 are random, 40 medium and
20 good (a mean return of -739); *maze*, `gimbal/maze/stitch-v0`, 600 ways between cells of a maze, none of which leads from the
start to the goal. Discount .95 on the pendulum, .99 in the maze. Every arm makes 3,000 moves by minibatches of 128 at a learning rate
of 1e-3, networks of 64 x 64, seeds 0 to 4. Figure: the mean return of 20 episodes of the environment itself, by the mode of the last
policy; in the maze that is the share of episodes that reach the goal.

**Settings of the methods.** As published: CQL's weight 5 and 10 actions of each kind, IQL's expectile .9 and beta 10 in the maze. Not
as published: IQL on the pendulum takes expectile .8 and beta 1, as its rewards are not scaled to returns of 1,000; TD3+BC takes
alpha 20 for 2.5, as returns there lie far from 0 (lambda divides by their size, not by how they differ), and 2.5 in the maze.

**Rule.** A method is above another on a data set if the interval of the difference of their figures, over all 25 pairs of seeds
(exact, 96.8 %: the third from either end), lies above 0. The claim holds for a method on a data set if it is above behavior cloning,
and if its base, where it has one besides, is not above it. It holds as a whole if it does so for all three on both.

**Limits.** 3,000 moves are few: what is slow to learn shows as worse. One learning rate for all.

Written before its runs, after pilots of seed 0: IQL (pendulum: -903 after 3,000 moves; the first maze: 1.0 after 1,000) and TD3+BC at
alpha 2.5 on the pendulum (-628). In a first maze the goal lay in the middle of all ways, and the mean of what the data do arrives
there by itself: behavior cloning had 1.0 in 5 of 5 seeds, IQL in the one that was run. The goal is at an end since, and the rule is
as it was.

    python claims/offline.py --processes 1     # goes on from claims/offline.json; half a minute of one core a run, CQL two
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch
from dose import shift

from gimbal import recipes
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
SEEDS, STEPS = (0, 1, 2, 3, 4), 12
DATA: Mapping[str, str] = {"maze": "gimbal/maze/stitch-v0", "pendulum": "gimbal/pendulum/mixed-v0"}
ARMS = ("bc", "iql", "td3_bc", "td3", "sac", "cql")
BASE = {"td3_bc": "td3", "iql": "bc", "cql": "sac"}
OF = {"td3": "td3_bc", "sac": "cql"}  # the recipe that an arm is, without what holds it to the data
SETTINGS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("iql", "maze"): {"update.expectile": "0.9", "update.beta": "10"},
    ("iql", "pendulum"): {"update.expectile": "0.8", "update.beta": "1"},
    ("td3_bc", "pendulum"): {"update.imitation.alpha": "20"},
    ("td3_bc", "maze"): {"update.imitation.alpha": "2.5"},
}
GAMMA = {"maze": 0.99, "pendulum": 0.95}


def run_of(arm: str, data: str, seed: int) -> UpdateRun:
    run = recipes.load(OF.get(arm, arm), {"tasks": DATA[data], **SETTINGS.get((arm, data), {})})
    update = run.update if arm == "bc" else replace(run.update, gamma=GAMMA[data])
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
