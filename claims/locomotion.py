"""SAC on MuJoCo's legs, beside Stable-Baselines3: is the return the same, and in how many seconds?

**Setting.** HalfCheetah-v5 and Hopper-v5, 50,000 steps of the environment, one move of each network a step after the first 100, one
thread. Arms: *gimbal*, the recipe ``sac`` as it is shipped but for the environment; *sb3*, Stable-Baselines3's SAC with the recipe's
networks (64, 64), minibatch (128), rates (1e-3) and all else as it ships. The return is that of the last policy at its mode: the mean
of 20 episodes that no run has trained on. Seconds are of the processor and of training alone.

**Rule.** Seeds 0 to 4. One side is above the other if the interval of the difference of their returns, over all 25 pairs of seeds
(exact, 96.8 %: the third from either end), lies on one side of 0; otherwise they are not told apart. The ratio of seconds is that of
each seed's two runs, which follow each other: its median, least and most.

**Limits.** Settings are the recipe's, chosen on Pendulum, not tuned here for either side. Published runs have networks of 256, a
minibatch of 256 and a million steps: at 50,000 returns are those of a policy that has begun to walk, and differ widely between seeds.

Written before its runs.

    python claims/locomotion.py    # goes on from claims/locomotion.json; an hour of one core; gymnasium[mujoco], extra bench
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.config import Text
from gimbal.runtime.evaluate import EvalResult
from gimbal.runtime.local import Trainer

RECORD = Path(__file__).with_suffix(".json")
TASKS, ARMS, SEEDS = ("HalfCheetah-v5", "Hopper-v5"), ("gimbal", "sb3"), range(5)
STEPS, EPISODES = 50_000, 20

Job = tuple[str, str, int]  # task, arm, seed


def ours(task: str, seed: int) -> tuple[float, float]:
    """Return and seconds."""
    run = recipes.load("sac", {"seed": seed, "environment": Text(task), "steps": STEPS // 10})
    trainer = Trainer(replace(run, threads=1))
    try:
        trainer.begin()
        seconds = time.process_time()
        campaign.interacted(trainer, STEPS)
        seconds = time.process_time() - seconds
        found = trainer.evaluate()
    finally:
        trainer.close()
    assert isinstance(found, EvalResult), "an environment's own return is the score"
    return found.greedy_score, seconds


def theirs(task: str, seed: int) -> tuple[float, float]:
    import gymnasium
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)
    sizes = {"learning_rate": 1e-3, "batch_size": 128, "policy_kwargs": {"net_arch": [64, 64]}}
    model = SAC("MlpPolicy", task, seed=seed, device="cpu", **sizes)
    seconds = time.process_time()
    model.learn(STEPS)
    seconds = time.process_time() - seconds
    fresh = Monitor(gymnasium.make(task))
    fresh.reset(seed=10_000 + seed)
    return float(evaluate_policy(model, fresh, EPISODES)[0]), seconds


def measure(job: Job) -> dict[str, Any]:
    task, arm, seed = job
    earned, seconds = (ours if arm == "gimbal" else theirs)(task, seed)
    told = {"return": round(earned, 1), "cpu": round(seconds, 1), "load": round(os.getloadavg()[1], 1)}
    return {"task": task, "arm": arm, "seed": seed, **told}


def left(runs: campaign.Runs) -> Iterator[Iterable[Job]]:
    """Both arms of a seed after each other; a task after the other."""
    done = {(run["task"], run["arm"], run["seed"]) for run in runs}
    for task in TASKS:
        yield [job for seed in SEEDS for arm in ARMS if (job := (task, arm, seed)) not in done]


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
