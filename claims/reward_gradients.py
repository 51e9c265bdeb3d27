"""Reward and its gradient: what does it buy to know the slope? (ReFL, arXiv:2304.05977; DRaFT, arXiv:2309.17400; DRTune)

**Setting.** gimbal-digits learns to draw fours: 64 samples a step in groups of 16, paths of six steps, on-policy, a float32 sampler.
The *reward* is log p(4) of a linear classifier on one half of scikit-learn's digits. The *true* reward, which no arm learns from, but
by which each chooses its rate, is the share of samples as near to a real four of the other half as 19 of 20 real fours are. *Coverage*:
the share of real fours with a sample nearer than their fifth neighbour among real fours. All of 200 samples of the ODE after the run;
of the base model they are 0.04, -5.58 (reward) and 0.12.

Arms: *flow_grpo*, scores alone: the clipped ratio on sampled steps, with its recipe's exact KL to the base. The others follow the
gradient of the reward, and are pulled to the clean samples that the base predicts: *draft*, through the last step (DRaFT-1); *refl*,
through one of the last four, with the reward of the clean sample predicted there; *drtune*, through three spaced steps with the
network's input detached. The pull is the recipe's, 10, and 0.1 of *draft*, the gradient of whose last step is a hundred times smaller.

Every run may spend 20,000 evaluations of the network on training, those of sampling, of the recomputed policy and of the reference
among them. One of a sample forward counts 1, and its backward pass 2 more. CPU seconds are the process's own, without evaluations.

**Rule.** Each arm has one run (seed 100) at each rate of 1e-4, 3e-4 and 1e-3, and 5 fresh seeds (0 to 4) at the rate of the highest
true reward after. An arm is *better* or *worse* than *flow_grpo* in a figure if all its five runs end above or below all five of that
(p < 0.01 by an exact permutation test of five and five); otherwise nothing is decided. The figures are reward, true reward and coverage
at 20,000 evaluations, and the true reward in training at 3 CPU seconds (the mean of the last three steps that ended before). *The slope
is hacked* if an arm is better in the reward and worse in the true reward. An arm without all of its runs has no verdict.

**Limits.** A linear classifier on 8x8 pixels is as easy to fool by its gradient as a reward can be. KL and pull are not tuned, three
rates are half a decade apart, and 20,000 evaluations are few steps of *flow_grpo*, about ten: this asks who is quicker, not who ends
higher. A run ends after the step that crosses the budget, and nothing is interpolated: *flow_grpo* spent 21,914 evaluations, the fresh
seeds of *drtune* 20,504 to 21,144, *draft* and *refl* 20,004. Every rate sits at an edge of those tried: *flow_grpo* and *draft* at the
highest, *refl* (.34, .30 and .18 by rising rate) and *drtune* at the lowest.

Written before its runs, after pilots (seed 100, 8 to 20 steps). Without a pull *refl* and *drtune* at 1e-3 reached the highest reward
and a true reward of 0 within 10 steps; with a pull on velocities at the gradient's own steps *draft* did not move at all; with the pull
of 10 above *drtune* at 3e-4 reached a true reward of 0.8 in ten steps, and *draft* at 1e-3 did not move. Five runs with the former pull
and a budget of 40,000 were stopped, seen, and not kept.

    python claims/reward_gradients.py --processes 1     # goes on from claims/reward_gradients.json; four minutes of one core
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal import recipes
from gimbal.engines.denoising import Denoising
from gimbal.learning.updates.gradient_steps import GradientSteps
from gimbal.learning.updates.reward_gradient import RewardGradient
from gimbal.policies.denoiser import DenoiserPolicy
from gimbal.rewards.digits import DigitClass, DigitDistance, DigitLikeness
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import AbstractRun, Run, UpdateRun

RECORD = Path(__file__).with_suffix(".json")
ARMS = ("flow_grpo", "draft", "refl", "drtune")
SEEDS, TUNING, RATES = (0, 1, 2, 3, 4), 100, (1e-4, 3e-4, 1e-3)
BUDGET, SECONDS, WINDOW, WANTED = 20_000, 3.0, 3, 4
FIGURES = {
    "true": "eval/greedy",
    "reward": "eval/greedy_score",
    "coverage": "eval/greedy_data/coverage",
    "distance": "eval/greedy_data/distance",
}
Job = tuple[str, int, float]


def arm_of(name: str, seed: int, rate: float) -> AbstractRun:
    run = recipes.function(name)()
    rewards = (
        DigitLikeness(wanted=WANTED, name="true", weight=0.0),
        DigitClass(wanted=WANTED, name="log_p"),
        DigitDistance(wanted=WANTED),
    )
    same = {"rewards": rewards, "prompts_per_step": 4, "steps": 1000, "seed": seed}
    same |= {"max_staleness": 0, "ahead": "ready", "engine": Denoising(slots=64)}
    run = replace(run, sampling=replace(run.sampling, max_length=6), **same)
    if isinstance(run, Run):
        return replace(run, optimization=replace(run.optimization, learning_rate=rate))
    assert isinstance(run, UpdateRun) and isinstance(run.update, RewardGradient)
    update = replace(run.update, optimization=replace(run.update.optimization, learning_rate=rate))
    if name == "draft":
        update = replace(update, steps=GradientSteps(count=1), coef=0.1)
    return replace(run, update=update)


class Counted:
    """Evaluations of the network, by all copies of the policy in this process."""

    def __init__(self) -> None:
        self.spent, found = 0, DenoiserPolicy.found

        def counting(policy: DenoiserPolicy, x_KD: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
            self.spent += len(x_KD) * (3 if torch.is_grad_enabled() else 1)
            return found(policy, x_KD, *rest)

        self._found = found
        DenoiserPolicy.found = counting  # type: ignore[method-assign]

    def stop(self) -> None:
        DenoiserPolicy.found = self._found  # type: ignore[method-assign]


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, seed, rate = job
    trainer = Trainer(arm_of(arm, seed, rate))
    trainer.begin()
    counted, start = Counted(), time.process_time()
    curve: dict[str, list[float]] = {name: [] for name in ("spent", "cpu", "true", "reward", "apart")}
    while counted.spent < BUDGET:
        metrics, *_ = trainer.advance()
        curve["spent"].append(counted.spent)
        curve["cpu"].append(round(time.process_time() - start, 2))
        curve["true"].append(round(metrics["pass_rate"], 3))
        curve["reward"].append(round(metrics["reward/log_p/mean"], 3))
        curve["apart"].append(round(metrics.get("kl/clean", metrics.get("kl/ref", 0.0)), 4))
    counted.stop()
    after = trainer.evaluate().metrics()
    trainer.close()
    ended = {f"{name}_after": round(after[key], 4) for name, key in FIGURES.items()}
    return {"arm": arm, "seed": seed, "rate": rate, **ended, "cpu": curve["cpu"][-1], "curve": curve}


def tuned(runs: list[dict[str, Any]], arm: str) -> dict[float, float]:
    """The true reward of the tuning runs, by rate."""
    return {run["rate"]: run["true_after"] for run in runs if run["arm"] == arm and run["seed"] == TUNING}


def best(runs: list[dict[str, Any]], arm: str) -> float | None:
    """The rate of an arm; None as long as it is not tuned."""
    found = tuned(runs, arm)
    return max(RATES, key=lambda rate: found[rate]) if found.keys() == set(RATES) else None


def fresh(runs: list[dict[str, Any]], arm: str) -> list[dict[str, Any]]:
    """The runs of the five seeds at the arm's rate, in the order of their seeds."""
    rate = best(runs, arm)
    own = (run for run in runs if run["arm"] == arm and run["seed"] in SEEDS and run["rate"] == rate)
    return sorted(own, key=lambda run: run["seed"])


def left(runs: list[dict[str, Any]]) -> Iterator[list[Job]]:
    """Tuning first, then the arms seed by seed."""
    yield missing(runs, [(arm, TUNING, rate) for rate in RATES for arm in ARMS])
    yield missing(runs, [(arm, seed, best(runs, arm) or 0.0) for seed in SEEDS for arm in ARMS])


def missing(runs: list[dict[str, Any]], jobs: list[Job]) -> list[Job]:
    done = {(run["arm"], run["seed"], run["rate"]) for run in runs}
    return [job for job in jobs if job not in done]


def told(run: Mapping[str, Any]) -> str:
    ends = f"true {run['true_after']}, reward {run['reward_after']}, coverage {run['coverage_after']}"
    return f"{run['arm']} {run['seed']} {run['rate']}: {ends}, {len(run['curve']['true'])} steps, {run['cpu']} CPU-s"


def early(run: Mapping[str, Any]) -> float:
    """The true reward in training at 3 CPU seconds."""
    done = [true for true, cpu in zip(run["curve"]["true"], run["curve"]["cpu"], strict=True) if cpu <= SECONDS]
    return sum(done[-WINDOW:]) / max(1, len(done[-WINDOW:]))


def figures(run: Mapping[str, Any]) -> dict[str, float]:
    """What the rule compares."""
    return {**{name: run[f"{name}_after"] for name in ("reward", "true", "coverage")}, "early": early(run)}


def beside(runs: list[dict[str, Any]], arm: str, figure: str) -> str:
    """How an arm ends beside flow_grpo."""
    own, other = ([figures(run)[figure] for run in fresh(runs, name)] for name in (arm, "flow_grpo"))
    if min(len(own), len(other)) < len(SEEDS):
        return "not run"
    return "better" if min(own) > max(other) else "worse" if max(own) < min(other) else "not decided"


def hacked(runs: list[dict[str, Any]], arm: str) -> bool | None:
    said = [beside(runs, arm, figure) for figure in ("reward", "true")]
    return None if "not run" in said else said == ["better", "worse"]


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
