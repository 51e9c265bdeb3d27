"""Do agents that draw what they do from one flow part, in one step, where each by itself cannot know who goes where (CoFlow,
arXiv:2605.01457)?

**Setting.** `gimbal/line/partings-v0`: three agents see three places and have each gone to another, in all six ways. The recipe
`coflow`, 1,500 moves. Four trainings: of agents that are coupled or not (`policy.coupled`), by mean velocities or as an ordinary flow
(`policy.averaged`). Arms: *coflow*, coupled, mean velocities, one step; *coflow apart*, the same policy where each agent draws by its
own noise what all might do and does its part (`policy.alone`), which is what shuffling the partners' samples does; *joint 10* and
*joint 1*, coupled, an ordinary flow in ten steps and in one; *independent* and *independent apart*, uncoupled, mean velocities, one
step; *independent 10*, uncoupled, an ordinary flow in ten steps. Figure: the share of 1,000 episodes in which every place is covered.
Agents that each draw a place by themselves cover all in .22 of them.

**Rates.** Each arm at the best of 1e-3, 3e-3 and 1e-2 by one run of seed 100, so two arms of one training may be of two rates.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Coupling coordinates* if *coflow* is above *independent*, *because they draw
together* if it is above *coflow apart*; *mean velocities spare steps* if it is above *joint 1*; *one step costs* if *joint 10* is
above *coflow*; *so do ordinary flows coordinate* if *joint 10* is above *independent 10*; *independent agents lose by drawing apart*
if *independent* is above *independent apart*.

**Limits.** One small task of one move, in which all agents see all there is. Published are tasks of MPE, MA-MuJoCo and SMAC, plans of
many steps, and returns to aim at.

Written before its runs, after a pilot of seed 100 at 3e-3: *coflow* .70 and *apart* .16 (in ten steps .84; with `straight` .25 and
`delta` .05 .59), *joint 10* .78 and *joint 1* .00; uncoupled, 3,000 moves, ten steps of an ordinary flow .14. A first form of the
task, in which three numbers had to add up to a fourth, showed nothing of steps: the mean of all ways does it too.

What else may explain it, seen after the runs: *coflow* chose 1e-3 by .571 beside .570, and at 3e-3 parts in .64, so that what one step
costs is overstated; it compares two trainings, not two numbers of steps of one. On equal weights *apart* is below *coflow* at either
rate. One Euler step of a flow gives the mean of all ways, so *joint 1* could hardly part. *coflow* has more weights and takes 3.5
times the CPU of *independent*, which is below what independent draws could reach (.22).

    python claims/together.py       # goes on from claims/together.json; about four minutes of one core
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import torch

from gimbal import recipes
from gimbal.environments.coop_line import CoopLine
from gimbal.policies.joint_flow import JointFlow, JointFlowPolicy
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
ARMS: dict[
    str, tuple[bool, bool, int, bool]
] = {  # coupled, averaged: the training; steps, and whether each draws alone
    "coflow": (True, True, 1, False),
    "coflow apart": (True, True, 1, True),
    "joint 10": (True, False, 10, False),
    "joint 1": (True, False, 1, False),
    "independent": (False, True, 1, False),
    "independent apart": (False, True, 1, True),
    "independent 10": (False, False, 10, False),
}
TUNED = campaign.Tuned(tuple(ARMS), (1e-3, 3e-3, 1e-2), (0, 1, 2, 3, 4), "success")
STEPS, EPISODES = 6, 1000  # of 250 moves
COMPARED = {
    "coupling coordinates": ("coflow", "independent"),
    "because they draw together": ("coflow", "coflow apart"),
    "mean velocities spare steps": ("coflow", "joint 1"),
    "one step costs": ("joint 10", "coflow"),
    "so do ordinary flows coordinate": ("joint 10", "independent 10"),
    "independent agents lose by drawing apart": ("independent", "independent apart"),
}

Job = tuple[bool, bool, float, int]  # coupled, averaged, learning rate, seed


def run_of(coupled: bool, averaged: bool, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("coflow")
    assert isinstance(run, UpdateRun) and isinstance(run.policy, JointFlow)
    rates = replace(run.update.optimization, learning_rate=rate)
    policy = replace(run.policy, coupled=coupled, averaged=averaged)
    return replace(
        run, policy=policy, update=replace(run.update, optimization=rates), steps=STEPS, seed=seed, threads=1
    )


def success(policy: JointFlowPolicy, steps: int, alone: bool, seed: int) -> float:
    """The share of episodes in which it covers all places."""
    policy.spec = replace(policy.spec, flow_steps=steps, alone=alone)
    world, seeds = CoopLine(), range(10_000 * seed, 10_000 * seed + EPISODES)
    seen_NO = torch.from_numpy(np.stack([world.reset(seed=number)[0] for number in seeds]))
    noise_NX = policy.noise(np.random.default_rng(seed), EPISODES)
    with torch.no_grad():
        action_NA = policy.draw(seen_NO, noise_NX, torch.ones(EPISODES))[0].numpy()
    covered = 0
    for number, action_A in zip(seeds, action_NA, strict=True):
        world.reset(seed=number)
        covered += world.step(action_A)[-1]["is_success"]
    return round(covered / EPISODES, 3)


def measure(job: Job) -> dict[str, Any]:
    coupled, averaged, rate, seed = job
    torch.set_num_threads(1)
    start, trainer = time.process_time(), Trainer(run_of(*job))
    trainer.begin()
    metrics = [trainer.advance()[0] for _ in range(STEPS)][-1]
    trainer.close()
    cpu, policy = time.process_time() - start, trainer.learner.policy
    assert isinstance(policy, JointFlowPolicy)
    arms = {
        arm: {"success": success(policy, steps, alone, seed)}
        for arm, (*training, steps, alone) in ARMS.items()
        if training == [coupled, averaged]
    }
    told = {"gate": round(metrics["flow/coupling"], 4), "few": round(metrics["flow/few"], 4), "cpu": round(cpu, 1)}
    return {"coupled": coupled, "averaged": averaged, "rate": rate, "seed": seed, "arms": arms, **told}


def by_arm(runs: campaign.Runs) -> campaign.Runs:
    """A record of each arm, of what was measured of one training."""
    shared = ("rate", "seed", "gate", "few", "cpu")
    return [
        {"arm": arm, **found, **{name: run[name] for name in shared}}
        for run in runs
        for arm, found in run["arms"].items()
    ]


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    """Trainings that are not recorded: those of the tuning, then those that an arm takes at its rate."""

    def undone(jobs: list[Job]) -> list[Job]:
        done = {(run["coupled"], run["averaged"], run["rate"], run["seed"]) for run in runs}
        return [job for job in dict.fromkeys(jobs) if job not in done]

    yield undone([(*made[:2], rate, TUNED.seed) for made in ARMS.values() for rate in TUNED.rates])
    rates = {arm: TUNED.best(by_arm(runs), arm) for arm in ARMS}
    yield undone(
        [
            (*made[:2], rate, seed)
            for seed in TUNED.seeds
            for arm, made in ARMS.items()
            if (rate := rates[arm]) is not None
        ]
    )


def told(run: Any) -> str:
    figures = ", ".join(f"{arm} {found['success']}" for arm, found in run["arms"].items())
    return f"rate {run['rate']} seed {run['seed']}: {figures}, {run['cpu']} CPU-s"


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
