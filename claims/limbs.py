"""Is a clip for each limb better than one for the whole body? (`JointsClipped`, of Thor, arXiv:2510.26280)

**Setting.** Two arms in a plane, of three links each; an action of six numbers turns the joints, by at most .25 a step. Each hand has a
place to reach, drawn anew in each episode of 20 steps; a step costs the mean of both distances (and .01 of the mean squared action).
The recipe `pendulum` (PPO, ten passes of five minibatches, discount .9) with batches of 50 episodes, none of them stale, 20 batches.
Figure: the mean return of 200 held-out episodes by the mode of the last policy: -22.5 if nothing moves, -6.9 by steps along the damped
inverse of the Jacobian.

**Arms.** *joint*, one ratio for all six numbers, clipped at .2; *limbs*, a ratio for each arm's three, each clipped at .2, one
advantage for both; *joint wide*, one ratio clipped at .4: two clips of .2 let the ratio of the whole go further than one, and that
alone may help.

**Rates.** Each arm at the best of 1e-3, 3e-3 and 1e-2, one for policy and critic, by one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *A clip for each limb helps* if *limbs* is above *joint*; *it is more than a wider
clip* if *limbs* is above *joint wide*. Recorded over all batches: the share of ratios that were clipped (of *limbs*: the mean of both;
and the share that a clip of .2 on their joint ratio would have met), and the KL to the policy as the update began.

**Limits.** A body made for the question, without forces or contact, whose limbs share the policy's layers and the reward alone. One
size of groups, one wider clip. The paper has a humanoid of three groups, whose form of the ratio is not public.

Written before its runs, after one pilot on this task (seed 101, 3e-3, 30 batches, *joint*): -12.9, .17 clipped, 13 CPU seconds. On
HalfCheetah-v5 by legs, the first choice, episodes cut off at 200 steps, 60,000 steps at 1e-3 brought *joint* to 12 in 21 CPU seconds,
and 24,000 steps in episodes of 100 to 10 (3e-3) and -8 (1e-2), *limbs* to 0 (3e-3): too dear, and too little to tell arms apart.

What else may explain it, seen after the runs: a clip of .4 is no match for two of .2. The KL of an update is .04 with *joint*, .06 with
*limbs* and .17 with *joint wide*, which is below *joint* too (-.70; -1.43 to -.04): that *limbs* is above it says that .4 is too wide
here, not that limbs help. All arms chose the highest rate tried.

    python claims/limbs.py       # goes on from claims/limbs.json; about four minutes of one core
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import campaign
import gymnasium
import numpy as np
import torch

from gimbal import recipes
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.objectives import ClippedRatio, JointsClipped
from gimbal.objectives.base import AbstractObjective
from gimbal.policies.gaussian import Gaussian
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut, Run

RECORD = Path(__file__).with_suffix(".json")
ARMS = ((0, 1, 2), (3, 4, 5))  # the joints of either
OBJECTIVES: dict[str, AbstractObjective] = {
    "joint": ClippedRatio(clip_low=0.2, clip_high=0.2),
    "limbs": JointsClipped(groups=ARMS, clip_low=0.2, clip_high=0.2),
    "joint wide": ClippedRatio(clip_low=0.4, clip_high=0.4),
}
TUNED = campaign.Tuned(tuple(OBJECTIVES), (1e-3, 3e-3, 1e-2), (0, 1, 2, 3, 4), "return")
COMPARED = {
    "a clip for each limb helps": ("limbs", "joint"),
    "it is more than a wider clip": ("limbs", "joint wide"),
}
BATCHES, EPISODES, LENGTH, TURN = 20, 50, 20, 0.25

Job = tuple[str, float, int]  # arm, learning rate, seed


class TwoArms(gymnasium.Env):
    """Two arms in a plane, each of three links of a third, of which an action turns each joint by at most .25. Each hand has a place to
    reach, within .9 of its shoulder. The reward is minus the mean of both distances, and .01 of the mean square of the action.

    Observed: six angles, and from each hand to its place.
    """

    longest: ClassVar[int] = LENGTH

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (10,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)
        self.angles, self.places, self.steps = np.zeros((2, 3)), np.zeros((2, 2)), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.angles, self.steps = self.np_random.uniform(-0.5, 0.5, (2, 3)), 0
        way, far = self.np_random.uniform(-np.pi, np.pi, 2), 0.9 * np.sqrt(self.np_random.uniform(0, 1, 2))
        self.places = np.stack([far * np.cos(way), far * np.sin(way)], -1)
        return self.seen, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        action = np.clip(action, -1, 1)
        self.angles, self.steps = self.angles + TURN * action.reshape(2, 3), self.steps + 1
        away = float(np.linalg.norm(self.gaps, axis=-1).mean())
        return self.seen, -away - 0.01 * float(np.square(action).mean()), False, self.steps >= self.longest, {}

    @property
    def gaps(self) -> np.ndarray:
        turned = self.angles.cumsum(-1)
        return self.places - np.stack([np.cos(turned).sum(-1), np.sin(turned).sum(-1)], -1) / 3

    @property
    def seen(self) -> np.ndarray:
        return np.concatenate([self.angles.ravel(), self.gaps.ravel()]).astype(np.float32)


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.load("pendulum")
    assert isinstance(run, Run) and run.critic is not None
    rates = {"learning_rate": rate, "critic_learning_rate": rate}
    tasks = Gymnasium(environment="limbs:TwoArms", seed=seed)
    return replace(
        run,
        policy=Gaussian(observations=10, actions=6),
        engine=Episodes(slots=EPISODES),
        tasks=tasks,
        held_out=HeldOut(tasks=replace(tasks, seed=1_000, size=200), samples=1, engine=Episodes(slots=EPISODES)),
        sampling=replace(run.sampling, max_length=LENGTH),
        prompts_per_step=EPISODES,
        max_staleness=0,
        objective=OBJECTIVES[arm],
        critic=replace(run.critic, observations=10, scale=5.0),
        optimization=replace(run.optimization, **rates),
        steps=BATCHES,
        seed=seed,
        threads=1,
    )


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, rate, seed = job
    trainer = Trainer(run_of(*job))
    trainer.begin()
    start = time.process_time()
    steps = [trainer.advance()[0] for _ in range(BATCHES)]
    cpu, after = time.process_time() - start, trainer.evaluate().metrics()
    trainer.close()
    clipped = [step["clip_ratio/low"] + step["clip_ratio/high"] for step in steps]
    joint = [step.get("clip_ratio/joint", own) for step, own in zip(steps, clipped, strict=True)]
    found = {"return": round(after["eval/greedy_score"], 3), "sampled": round(after["eval/score"], 3)}
    means = {"clipped": clipped, "joint": joint, "kl": [step["kl/old"] for step in steps]}
    found |= {name: round(statistics.fmean(values), 4) for name, values in means.items()}
    return {"arm": arm, "rate": rate, "seed": seed, **found, "cpu": round(cpu, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
