"""A point that has to come to its dock and stay there."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float

STEP = 0.1  # the longest, in either direction
BEGINNING, DOCK = np.array([-0.6, 0.0]), np.array([0.4, 0.0], np.float32)  # about where it begins; the dock
SPREAD = 0.2  # of beginnings, in either direction


class Docking(gymnasium.Env):
    """A point in [-1, 1]^2 moves by at most ``STEP`` a step in either direction. It begins on the left, and its dock is on the right. A
    step that ends within ``radius`` of the dock pays 1, any other nothing. Nothing ends, and it is cut off after 40 steps.

    Observed by gymnasium's convention of goals: ``observation`` (the last step), ``achieved_goal`` (the place) and ``desired_goal``
    (the dock).
    """

    longest: ClassVar[int] = 40

    def __init__(self) -> None:
        box = gymnasium.spaces.Box
        goal, step = box(-1.0, 1.0, (2,), np.float32), box(-STEP, STEP, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(
            {"observation": step, "achieved_goal": goal, "desired_goal": goal}
        )
        self.action_space = step
        self.radius = 0.15
        self.place, self.moved = np.zeros(2, np.float32), np.zeros(2, np.float32)
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self.place = (BEGINNING + self.np_random.uniform(-SPREAD, SPREAD, 2)).astype(np.float32)
        self.moved, self.steps = np.zeros(2, np.float32), 0
        return self.seen, {}

    def step(self, action: Float[np.ndarray, " 2"]) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        before = self.place
        self.place = np.clip(before + np.clip(action, -STEP, STEP), -1, 1).astype(np.float32)
        self.moved, self.steps = self.place - before, self.steps + 1
        reward = float(self.compute_reward(self.place, DOCK, {}))
        return self.seen, reward, False, self.steps >= self.longest, {"is_success": reward == 1}

    def compute_reward(
        self, achieved_goal: Float[np.ndarray, "*K 2"], desired_goal: Float[np.ndarray, "*K 2"], info: Any
    ) -> Float[np.ndarray, "*K"] | float:
        return (np.linalg.norm(achieved_goal - desired_goal, axis=-1) < self.radius).astype(np.float64)

    @property
    def seen(self) -> dict[str, np.ndarray]:
        return {"observation": self.moved, "achieved_goal": self.place, "desired_goal": DOCK.copy()}
