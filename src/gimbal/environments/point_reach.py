"""A point that has to reach a place that another is drawn for in each episode, and is not paid for coming nearer."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float

AXES, STEP = 4, 0.1  # the longest step in each direction


class PointReach(gymnasium.Env):
    """A point in [-1, 1]^4 moves by at most ``STEP`` a step in each direction. It begins in the middle; the goal is drawn uniformly.
    The reward is 0 within ``radius`` of the goal and -1 elsewhere; nothing ends, and it is cut off after 30 steps.

    Observed by gymnasium's convention of goals: ``observation`` (the last step), ``achieved_goal`` (the place) and ``desired_goal``. A
    ball of the default radius fills .0002 of the space.
    """

    longest: ClassVar[int] = 30

    def __init__(self) -> None:
        box = gymnasium.spaces.Box
        goal, step = box(-1.0, 1.0, (AXES,), np.float32), box(-STEP, STEP, (AXES,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(
            {"observation": step, "achieved_goal": goal, "desired_goal": goal}
        )
        self.action_space = step
        self.radius = 0.15
        self.place, self.goal, self.moved = (np.zeros(AXES, np.float32) for _ in range(3))
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.moved = np.zeros(AXES, np.float32), np.zeros(AXES, np.float32)
        self.goal, self.steps = self.np_random.uniform(-1, 1, AXES).astype(np.float32), 0
        return self.seen, {}

    def step(self, action: Float[np.ndarray, " 4"]) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        before = self.place
        self.place = np.clip(before + np.clip(action, -STEP, STEP), -1, 1).astype(np.float32)
        self.moved, self.steps = self.place - before, self.steps + 1
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self.seen, reward, False, self.steps >= self.longest, {"is_success": reward == 0}

    def compute_reward(
        self, achieved_goal: Float[np.ndarray, "*K 4"], desired_goal: Float[np.ndarray, "*K 4"], info: Any
    ) -> Float[np.ndarray, "*K"] | float:
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > self.radius).astype(np.float64)

    @property
    def seen(self) -> dict[str, np.ndarray]:
        return {"observation": self.moved, "achieved_goal": self.place, "desired_goal": self.goal.copy()}
