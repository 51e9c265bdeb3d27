"""A reward that can be hacked: who keeps the true one? (GARDO, arXiv:2512.24138)

**Setting.** gimbal-digits learns to draw fours, 24 steps of 64 samples in groups of 16, paths of six steps, data one version old, a
bfloat16 sampler. The *proxy* is the logit of four of a linear classifier on one half of scikit-learn's digits: it has no bound, so
images like no digit earn most. The *true* reward, which no arm learns from, but by which each with a KL chooses its coefficient, is the
share of samples as near to a real four of the other half as 19 of 20 real fours are. Beside it: *coverage*, the share of real fours
with a sample nearer than their fifth neighbour among real fours, and *distance*, the mean distance to the nearest real image. All of
200 samples of the ODE, before and after.

Arms differ in what holds them: *free*, nothing; *kl*, the exact KL to the base on all samples; *gardo*, the recipe `gardo`: the same
KL on the share (2 to 20 %) of samples whose proxy beats more others than a coarse auxiliary reward does (their nearness, in 4x4
pixels, to real fours of the proxy's half), a reference that follows after 15 steps or at a KL of 0.05, and positive advantages weighted
by the distance to the nearest sample of the group. Two arms tell its parts apart: *gate*, the gated KL alone; *renewed*, that and the
reference that follows. Advantages are rewards less the group's mean in all.

**Rule.** Each arm with a KL is tuned: one run (seed 100) at each coefficient of 0.04, 0.2 and 1, and 5 fresh seeds (0 to 4) at the
one of the highest true reward after. *Hacked*: in all seeds of *free* the true reward of the last four steps is at least 0.1 below
that of the best four in a row, and the proxy ends above its beginning. *Keeps*: *gardo* ends above *free* in the true reward in all
pairs of runs. *Better than a KL on all*: *gardo* ends above *kl* in true reward and in coverage, each in all pairs of runs (p < 0.01
by an exact permutation test of five and five). *gate* and *renewed* are described, and decide nothing. An arm without all of its runs
has no verdict.

**Limits.** The auxiliary reward knows the digits of one half, and the true one those of the other, so it is a better judge than the
light models of the paper are. Features are pixels. 24 steps do not tell slow from lost. *free* is not tuned at all, and the learning
rate of no arm is. The base has a true reward of .04: what an arm *keeps* is what it has reached itself.

Written before its runs, after a pilot of 18 steps of *free* at 128 samples and ten steps a path (seed 100), in which the true reward
rose to 0.69 and had begun to fall. The coefficient of 0.04 was added after the first 33 runs: all arms had taken the lower of two, and
it is the published one.

**After the runs**: *gate* has the highest true reward and coverage, but beside *kl* it is undecided: true reward .035 (-.030 to .120),
coverage .017 (-.028 to .061), distance -.070 (-.167 to .024). Beside *gardo* it covers more (.199; .072 to .260) at a smaller distance
(-.190; -.269 to -.037), and is undecided in the true reward (.085; -.015 to .130).

    python claims/gardo.py --processes 1     # goes on from claims/gardo.json; fifteen minutes of one core
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal.objectives.regularisers.gated_step_kl import GatedStepKL
from gimbal.objectives.regularisers.step_kl import StepKL
from gimbal.recipes.papers.denoising.gardo import gardo
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
ARMS, DECIDING, SEEDS, TUNING = (
    ("free", "kl", "gardo", "gate", "renewed"),
    ("free", "kl", "gardo"),
    (0, 1, 2, 3, 4),
    100,
)
COEFS, WINDOW = (0.04, 0.2, 1.0), 4
FIGURES = {
    "true": "eval/greedy",
    "proxy": "eval/greedy_score",
    "distance": "eval/greedy_data/distance",
    "coverage": "eval/greedy_data/coverage",
}
Job = tuple[str, int, float]


def arm_of(name: str, seed: int, coef: float) -> Run:
    run = replace(gardo(), seed=seed)
    if name in ("free", "kl"):
        held = (StepKL(coef=coef),) if name == "kl" else ()
        return replace(run, regularisers=held, controllers={}, renewal=None, shaping=())
    (gate,) = run.regularisers
    assert isinstance(gate, GatedStepKL)
    run = replace(run, regularisers=(replace(gate, coef=coef),))
    if name == "gardo":
        return run
    return replace(run, shaping=(), renewal=run.renewal if name == "renewed" else None)


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, seed, coef = job
    run = arm_of(arm, seed, coef)
    trainer = Trainer(run)
    trainer.begin()
    before, start = trainer.evaluate().metrics(), time.process_time()
    curve: dict[str, list[float]] = {name: [] for name in ("true", "proxy", "kl", "share", "renewed")}
    for _ in range(run.steps):
        metrics, *_ = trainer.advance()
        curve["true"].append(round(metrics["pass_rate"], 3))
        curve["proxy"].append(round(metrics["reward/logit/mean"], 2))
        curve["kl"].append(round(metrics.get("kl/ref", 0.0), 5))
        curve["share"].append(round(metrics.get("control/regularisers.0.share", 0.0), 4))
        curve["renewed"].append(metrics.get("memory/renewal.due", 0.0))
    cpu = time.process_time() - start
    after = trainer.evaluate().metrics()
    trainer.close()
    return {
        "arm": arm,
        "seed": seed,
        "coef": coef,
        **campaign.ends(before, after, FIGURES),
        "cpu": round(cpu, 1),
        "curve": curve,
    }


def tuned(runs: list[dict[str, Any]], arm: str) -> dict[float, float]:
    """The true reward of the tuning runs, by coefficient."""
    return {run["coef"]: run["true_after"] for run in runs if run["arm"] == arm and run["seed"] == TUNING}


def best(runs: list[dict[str, Any]], arm: str) -> float | None:
    """The coefficient of an arm; None as long as it is not tuned."""
    if arm == "free":
        return 0.0
    found = tuned(runs, arm)
    return max(COEFS, key=lambda coef: found[coef]) if found.keys() == set(COEFS) else None


def fresh(runs: list[dict[str, Any]], arm: str) -> list[dict[str, Any]]:
    """The runs of the five seeds at the arm's coefficient, in the order of their seeds."""
    coef = best(runs, arm)
    return sorted(
        (run for run in runs if run["arm"] == arm and run["seed"] in SEEDS and run["coef"] == coef),
        key=lambda r: r["seed"],
    )


def left(runs: list[dict[str, Any]]) -> Iterator[list[Job]]:
    """Tuning first, then the arms that decide, seed by seed, then the others."""
    for arms in (DECIDING, ARMS[len(DECIDING) :]):
        yield missing(runs, [(arm, TUNING, coef) for coef in COEFS for arm in arms if arm != "free"])
        yield missing(runs, [(arm, seed, best(runs, arm) or 0.0) for seed in SEEDS for arm in arms])


def missing(runs: list[dict[str, Any]], jobs: list[Job]) -> list[Job]:
    done = {(run["arm"], run["seed"], run["coef"]) for run in runs}
    return [job for job in jobs if job not in done]


def told(run: Mapping[str, Any]) -> str:
    return f"{run['arm']} {run['seed']} {run['coef']}: true {run['true_before']} -> {run['true_after']}, {run['cpu']} CPU-s"


def above(runs: list[dict[str, Any]], one: str, other: str, name: str) -> bool | None:
    """Whether every run of one arm ends above every run of the other; None as long as runs are missing."""
    own, its = fresh(runs, one), fresh(runs, other)
    if min(len(own), len(its)) < len(SEEDS):
        return None
    return min(run[f"{name}_after"] for run in own) > max(run[f"{name}_after"] for run in its)


def hacked(runs: list[dict[str, Any]]) -> bool | None:
    own = fresh(runs, "free")
    if len(own) < len(SEEDS):
        return None
    return all(fall(run) >= 0.1 and run["proxy_after"] > run["proxy_before"] for run in own)


def fall(run: Mapping[str, Any]) -> float:
    """By how much the true reward of the last steps in training is below that of the best ones."""
    true = run["curve"]["true"]
    means = [statistics.fmean(true[at : at + WINDOW]) for at in range(len(true) - WINDOW + 1)]
    return max(means) - means[-1]


def keeps(runs: list[dict[str, Any]]) -> bool | None:
    return above(runs, "gardo", "free", "true")


def better(runs: list[dict[str, Any]]) -> bool | None:
    both = [above(runs, "gardo", "kl", name) for name in ("true", "coverage")]
    return None if None in both else all(both)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
