"""Whether PPO finds several good ways where its noise goes through a flow that is cloned anew: GoRL (arXiv:2512.02581).

python claims/decoders.py
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import gymnasium
import numpy as np

from gimbal import recipes
from gimbal.environments.recording import Recording, write
from gimbal.policies.decoded import Decoded
from gimbal.runtime.local import Trainer
from gimbal.runtime.playing import recorded
from gimbal.runtime.run import Run, UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("gorl", "held", "ppo"), (1e-3, 3e-3), (0, 1, 2, 3, 4), "return")
COMPARED = {
    "more goals than PPO": ("gorl", "ppo", "goals"),
    "more goals than PPO that is held": ("gorl", "held", "goals"),
    "it earns less": ("ppo", "gorl", "return"),
}
GOALS = np.array([[5, 0], [-5, 0], [0, 5], [0, -5]], np.float32)
STAGES, STEPS, EPISODES, MOVES = 4, 12, 40, 4  # learner steps of a stage, episodes of one; 250 moves each of a flow

Job = tuple[str, float, int]  # arm, learning rate, seed


class FourGoals(gymnasium.Env):
    """A point in a plane begins in the middle of four goals, 5 away, and moves by at most 1 a step in each direction. It pays its
    distance to the nearest, as a share of 5, at every step; it ends within .7 of one, and is cut off after 20 steps."""

    longest = 20

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.place, self.steps = np.zeros(2, np.float32), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place, self.steps = (0.1 * self.np_random.standard_normal(2)).astype(np.float32), 0
        return self.place / 5, {}

    def step(self, action: np.ndarray) -> Any:
        self.place = np.clip(self.place + np.clip(action, -1, 1), -7, 7).astype(np.float32)
        self.steps += 1
        away = float(np.linalg.norm(self.place - GOALS, axis=-1).min())
        return self.place / 5, -away / 5, away < 0.7, self.steps >= self.longest, {}


def run_of(arm: str, rate: float, seed: int, steps: int, flow: str = "") -> Run:
    run = recipes.load("pendulum" if arm == "ppo" else "gorl", {"tasks.environment": "decoders:FourGoals"})
    assert isinstance(run, Run)
    rates = replace(run.optimization, learning_rate=rate, critic_learning_rate=rate, decay="constant")
    policy = replace(run.policy, flow=flow) if isinstance(run.policy, Decoded) else run.policy
    run = replace(run, policy=policy, optimization=rates, prompts_per_step=EPISODES, held_out=None)
    return replace(run, steps=steps, max_staleness=0, seed=seed, threads=1)


def trained(run: Run | UpdateRun) -> Trainer:
    trainer = Trainer(run)
    trainer.begin()
    for _ in range(run.steps):
        trainer.advance()
    return trainer


def cloned(data: Recording, seed: int, home: Path) -> str:
    """The directory of a flow that clones these episodes."""
    write(data, home / "data", "data")
    run = recipes.load("idql", {"tasks": str(home / "data")})
    assert isinstance(run, UpdateRun)
    trainer = trained(replace(run, steps=MOVES, seed=seed, threads=1, held_out=None))
    trainer.learner.save(home / "flow")
    trainer.close()
    return str(home / "flow")


def played(run: Run, trainer: Trainer, episodes: int, seed: int) -> Recording:
    return recorded(run, trainer.learner.policy, episodes=episodes, seed=seed, temperature=1.0)


def found(data: Recording) -> dict[str, float]:
    """What episodes earn, and how many goals at least 5 % of them reach."""
    ends = np.stack([5 * episode.observation_SO[-1] for episode in data.episodes])
    near = np.linalg.norm(ends[:, None] - GOALS, axis=-1) < 0.7
    return {"return": round(float(np.mean(data.returns())), 3), "goals": float((near.mean(0) >= 0.05).sum())}


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    start, stages = time.process_time(), []
    if arm != "gorl":
        run = run_of(arm, rate, seed, STAGES * STEPS)
        trainer = trained(run)
    else:
        run = run_of(arm, rate, seed, STEPS)
        trainer = trained(run)
        for stage in range(1, STAGES):
            with tempfile.TemporaryDirectory() as home:
                data = played(run, trainer, 100, seed + 1000 * stage)
                stages.append(found(data))
                trainer.close()
                run = run_of(arm, rate, seed + 1000 * stage, STEPS, cloned(data, seed, Path(home)))
                trainer = trained(run)
    figures = found(played(run, trainer, 100, seed))
    trainer.close()
    own = {"stages": stages} if stages else {}
    return {"arm": arm, "rate": rate, "seed": seed, **figures, **own, "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
