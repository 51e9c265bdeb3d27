"""Two roles, one model or two: which learns more from the same number of generated tokens (ReMA, arXiv:2503.09501)?

**Setting.** The recipe ``rema``: a planner adds the first two terms of a sum of four, and an executor, which sees the planner's result
and not the sum, ends it; both rows earn the outcome. Two arms: *separate* is the recipe, a model for each role (twice the weights);
*shared* is the same with ``separate={}``, one model that its prompts tell who it is. Both start from gimbal-tiny, take the same batches
of 16 tasks x 8 episodes, and stop after the step in which 60,000 tokens are generated.

**Rates.** Each arm at the best of 2.5e-5, 5e-5, 1e-4, 2e-4 and 4e-4 by one run of seed 100, the same for both models of *separate*.

**Rule.** Seeds 0 to 4, pass@1 on 128 held-out tasks with 4 samples each, after training. One arm is better if the 95 % interval of the
mean paired difference over seeds (t, 4 degrees of freedom) leaves out 0. An interval with 0 in it decides nothing.

**Limits.** The two roles' tasks are alike (a sum in the words that gimbal-tiny was taught), which favours shared weights: what one role
learns helps the other. One model of a million weights, one task, one budget.

Written before its runs. A pilot of *separate* at 3e-4 (20 steps, seed 0, 78,000 tokens; held-out pass@1 0.087) showed what a step
costs; it is in no table. The two lowest rates were added after a first reading, in which 1e-4 was the lowest and the best of both
arms, and *separate* minus *shared* -0.058 (-0.076 to -0.040).

    python claims/roles.py       # goes on from claims/roles.json; about ten minutes of one idle core
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal.environments.shared_sums import SharedSums
from gimbal.recipes import function
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
ARMS, RATES, TUNING, SEEDS = ("shared", "separate"), (2.5e-5, 5e-5, 1e-4, 2e-4, 4e-4), 100, range(5)
TOKENS, HELD_OUT = 60_000, 128

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = function("rema")()
    assert run.held_out is not None and isinstance(run.held_out.tasks, SharedSums)
    held_out = replace(run.held_out.tasks, tasks=replace(run.held_out.tasks.tasks, size=HELD_OUT))
    return replace(
        run,
        seed=seed,
        threads=1,
        held_out=replace(run.held_out, tasks=held_out),
        optimization=replace(run.optimization, learning_rate=rate),
        separate=run.separate if arm == "separate" else {},
    )


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    torch.set_flush_denormal(True)
    trainer = Trainer(run_of(arm, rate, seed))
    trainer.begin()
    cpu, steps = time.process_time(), list[Mapping[str, float]]()
    while not steps or steps[-1]["tokens"] < TOKENS:
        steps.append(trainer.advance()[0])
    cpu = time.process_time() - cpu
    found = {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        "after": round(trainer.evaluate().metrics()["eval/pass@1"], 4),
        "mean": round(sum(step["pass_rate"] for step in steps) / len(steps), 4),
        "tokens": int(steps[-1]["tokens"]),
        "steps": len(steps),
        "cpu": round(cpu, 1),
        "load": round(os.getloadavg()[1], 1),
        "moved": [name for name in ("grad_norm", "grad_norm/executor") if any(step.get(name, 0) for step in steps)],
        "pass_rate": [round(step["pass_rate"], 3) for step in steps],
    }
    trainer.close()
    return found


def best(runs: campaign.Runs, arm: str) -> float | None:
    """The rate at which an arm is compared, once its runs of the tuning seed are all there."""
    tuned = [run for run in runs if run["seed"] == TUNING and run["arm"] == arm]
    return max(tuned, key=lambda run: run["after"])["rate"] if len(tuned) == len(RATES) else None


def left(runs: campaign.Runs) -> Iterator[Iterable[Job]]:
    done = {(run["arm"], run["rate"], run["seed"]) for run in runs}
    yield [job for rate in RATES for arm in ARMS if (job := (arm, rate, TUNING)) not in done]
    chosen = {arm: rate for arm in ARMS if (rate := best(runs, arm)) is not None}
    for seed in SEEDS:
        yield [job for arm, rate in chosen.items() if (job := (arm, rate, seed)) not in done]


def told(found: Mapping[str, Any]) -> str:
    return " ".join(f"{name} {value}" for name, value in found.items() if name != "pass_rate")


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
