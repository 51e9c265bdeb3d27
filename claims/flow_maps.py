"""A sampler of any number of steps: is it better than its teacher in as few, and is it better to learn on its own paths? (AnyFlow)

**Setting.** gimbal-digits, without classes. *base* is the shipped model, by the ODE in 1, 2, 4 and 8 steps, evenly spaced from 1 to
1 / S. *own* is the recipe `any_flow`: 100 learner steps on 64 paths of two steps, four states of each, the base as its teacher, and a
rate that falls to 0. *taught* is the same with `update.walker=teacher`: states lie on the teacher's path, of eight steps from the same
noise, as off-policy distillation has them. One model of each run samples in all four numbers of steps.

**Figures**, of 400 samples: *energy in S*, the energy distance to scikit-learn's 1,797 digits as in `few_steps.py`; *coverage in S*,
the share of digits with a sample nearer than their fifth neighbour. *mean*: of the natural logarithms of the four energies.

**Rule.** Each arm at the best of 1e-3, 2e-3 and 4e-3 by *mean* of one run of seed 100, then seeds 0 to 4, which set training and the
noise that is sampled from. An arm is nearer than another if the interval of the difference in *energy*, over all 25 pairs of seeds
(exact, 96.8 %: the third from either end), lies below 0, and farther if it lies above. For each S: *distillation helps* if *own* is
nearer than *base* in S steps; *it halves the steps* if *own* in S is nearer than *base* in 2 S (S up to 4); *it keeps coverage* if
the interval of the difference in coverage does not lie below 0; *own paths are better* if *own* is nearer than *taught* in S steps.
*More steps are never worse* if in each run of *own* energy falls from 1 to 2, 4 and 8 steps.

**Added after these runs**, and deciding nothing: *own* at the rate of *taught*, 2e-3, on the same seeds. The rule had given the two
different rates, since *mean* follows the energy in 8 steps, which 400 samples do not tell from 0, and in one step the rate matters
more than whose paths they are.

**Limits.** 8 x 8 pixels; energies near that of ten of the base's steps (0.03) are near what 400 samples can tell. AnyFlow's own paths
come in a second stage, with scores of distribution matching; here they feed the loss of the map itself. Coverage of an unsharp sampler
is flattered.

Written before its runs, after pilots of seed 100: the base had energies of 2.22, 0.36, 0.071 and 0.019; *own* after 150 steps at 2e-3
0.15, 0.035, 0.012 and 0.0043, and *taught* 0.16, 0.034, 0.011 and 0.0040, in twice the time.

    python claims/flow_maps.py --processes 1     # goes on from claims/flow_maps.json; fifteen minutes of one idle core
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import few_steps
import torch

from gimbal import recipes
from gimbal.learning.updates.flow_map import FlowMap
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
BASE, OWN, TAUGHT, SAME_RATE = "base", "own", "taught", "own at 2e-3"
ALIKE = 2e-3
COUNTS = (1, 2, 4, 8)

Job = tuple[str, float, int]  # arm, learning rate (0 of the base), seed


def worth(run: Mapping[str, Any]) -> float:
    return -run["mean"]


TUNED = campaign.Tuned((OWN, TAUGHT), (1e-3, 2e-3, 4e-3), (0, 1, 2, 3, 4), "mean", worth=worth)


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("any_flow")
    assert isinstance(run, UpdateRun) and isinstance(run.update, FlowMap)
    rates = replace(run.update.optimization, learning_rate=rate)
    update = replace(run.update, optimization=rates, walker="policy" if arm == OWN else "teacher")
    return replace(run, update=update, held_out=None, seed=seed)


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, rate, seed = job
    start = time.process_time()
    if arm == BASE:
        policy = Denoiser().load()
    else:
        trainer = Trainer(run_of(*job))
        trainer.begin()
        for _ in range(trainer.run.steps):
            trainer.advance()
        trainer.close()
        policy = trainer.learner.policy
    cpu, found = round(time.process_time() - start, 1), dict[str, float]()
    for count in COUNTS:
        sampling = PathSampling(max_length=count, sampler="ode", spacing="trailing")
        told = few_steps.figures(few_steps.drawn(policy, sampling, seed))
        found |= {f"{name} in {count}": told[name] for name in ("energy", "coverage")}
    # An estimate without bias may be 0 or less.
    logs = [math.log(max(found[f"energy in {count}"], 1e-4)) for count in COUNTS]
    return {"arm": arm, "rate": rate, "seed": seed, **found, "mean": round(statistics.fmean(logs), 4), "cpu": cpu}


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    done = {(run["arm"], run["seed"]) for run in runs if run["arm"] == BASE}
    yield [(BASE, 0.0, seed) for seed in TUNED.seeds if (BASE, seed) not in done]
    yield from TUNED.left(runs)
    there = {(run["arm"], run["rate"], run["seed"]) for run in runs}
    yield [job for seed in TUNED.seeds if (job := (OWN, ALIKE, seed)) not in there]


def own(runs: campaign.Runs, arm: str) -> list[Mapping[str, Any]]:
    if arm in (OWN, TAUGHT):
        return list(TUNED.fresh(runs, arm))
    of = (BASE, 0.0) if arm == BASE else (OWN, ALIKE)
    found = [run for run in runs if (run["arm"], run["rate"]) == of and run["seed"] in TUNED.seeds]
    return sorted(found, key=lambda run: run["seed"])


def apart(
    runs: campaign.Runs, count: int, other: str, beside: int, figure: str = "energy", of: str = OWN
) -> tuple[float, float, float] | None:
    """By how much the figure of *own* is above another arm's in ``beside`` steps, and the interval, once all seeds are there."""
    both = [[run[f"{figure} in {n}"] for run in own(runs, arm)] for arm, n in ((of, count), (other, beside))]
    return campaign.shift(*both) if all(len(values) == len(TUNED.seeds) for values in both) else None


def falls(runs: campaign.Runs) -> int:
    """In how many runs of *own* energy falls with each doubling of the steps."""
    lines = [[run[f"energy in {count}"] for count in COUNTS] for run in own(runs, OWN)]
    return sum(line == sorted(set(line), reverse=True) for line in lines)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
