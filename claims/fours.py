"""Flow-GRPO on digits: the wanted class, and what it costs in distance to the data.

**Setting.** `gimbal train flow_grpo`: gimbal-digits (a DiT of 297 k parameters, float32) learns to draw fours, 24 steps of 128
samples, data one version old, sampled in bfloat16; reward log p(4) of a linear classifier on one half of scikit-learn's digits. Two
arms: *kl* is the recipe (exact KL to the base, coefficient 0.04), *free* the same without it. Both are measured before and after
on 200 samples drawn by the ODE, each from its own noise: *fours*, the share that the five nearest images of the other half of the
data vote to be a four; *distance*, the mean distance to the nearest real image; *coverage*, the share of the real fours that have
a sample nearer than their fifth neighbour among real fours.

**Rule.** Seeds 0 to 4. *Learned*: in all of them fours are below 0.1 before and above 0.9 after, and the 24 steps take at most 30
seconds of CPU (the process's own time, without start and evaluations). *Holds*: in all of them the distance after is not above the
distance before, and the coverage not below it. Hacking is shown if *free* ends farther from the data than *kl* in all seeds.

**Limits.** A reward that is a classifier on 8x8 pixels. CPU seconds are of a shared machine, whose cores are slower when both are busy.
Seed 0, by which coefficient, rate and number of steps were chosen, is one of the five.

Written before its runs, after a pilot of four (seed 0), which chose the coefficient, the learning rate and the number of steps.

    python claims/fours.py --processes 1     # goes on from claims/fours.json; ten minutes of one core
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.runtime.local import Trainer

RECORD = Path(__file__).with_suffix(".json")
ARMS, SEEDS = ("kl", "free"), (0, 1, 2, 3, 4)
FIGURES = {"fours": "eval/greedy", "distance": "eval/greedy_data/distance", "coverage": "eval/greedy_data/coverage"}


def measure(job: tuple[str, int]) -> dict[str, Any]:
    arm, seed = job
    run = replace(flow_grpo(), seed=seed)
    torch.set_num_threads(run.threads)
    trainer = Trainer(run if arm == "kl" else replace(run, regularisers=()))
    trainer.begin()
    before = trainer.evaluate().metrics()
    start, clock, curve, oldest = time.process_time(), time.perf_counter(), [], 0.0
    for _ in range(run.steps):
        metrics, *_ = trainer.advance()
        curve.append(round(metrics["pass_rate"], 4))
        oldest = max(oldest, metrics["staleness/max"])
    cpu, wall = time.process_time() - start, time.perf_counter() - clock
    after = trainer.evaluate().metrics()
    trainer.close()
    sde = {"sde_before": round(before["eval/pass@1"], 4), "sde_after": round(after["eval/pass@1"], 4)}
    return {
        "arm": arm,
        "seed": seed,
        **campaign.ends(before, after, FIGURES),
        **sde,
        "cpu": round(cpu, 1),
        "wall": round(wall, 1),
        "oldest": oldest,
        "curve": curve,
    }


def left(runs: list[dict[str, Any]]) -> Iterable[list[tuple[str, int]]]:
    done = {(run["arm"], run["seed"]) for run in runs}
    return [[job for seed in SEEDS for arm in ARMS if (job := (arm, seed)) not in done]]


def told(run: Mapping[str, Any]) -> str:
    return f"{run['arm']} {run['seed']}: fours {run['fours_before']} -> {run['fours_after']}, {run['cpu']} CPU-s"


def learned(runs: list[dict[str, Any]]) -> bool:
    own = [run for run in runs if run["arm"] == "kl"]
    fast = all(run["fours_before"] < 0.1 and run["fours_after"] > 0.9 and run["cpu"] <= 30 for run in own)
    return len(own) == len(SEEDS) and fast


def holds(runs: list[dict[str, Any]]) -> bool:
    own = [run for run in runs if run["arm"] == "kl"]
    near = all(r["distance_after"] <= r["distance_before"] and r["coverage_after"] >= r["coverage_before"] for r in own)
    return len(own) == len(SEEDS) and near


def hacked(runs: list[dict[str, Any]]) -> bool:
    far = {(run["arm"], run["seed"]): run["distance_after"] for run in runs}
    return len(far) == len(ARMS) * len(SEEDS) and all(far["free", seed] > far["kl", seed] for seed in SEEDS)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
