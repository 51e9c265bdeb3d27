"""A pendulum of some mass, which it tells."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np


class ToldPendulum(gymnasium.Env):
    """gymnasium's Pendulum-v1, cut off after 200 steps, of mass ``m`` (an attribute, 1 by default). Observed: (cos, sin, speed, mass).

    - without the last number: Pendulum-v1 of that mass.
    """

    longest: ClassVar[int] = 200

    def __init__(self) -> None:
        self.pendulum: Any = gymnasium.make("Pendulum-v1").unwrapped
        box: Any = self.pendulum.observation_space
        low, high = np.append(box.low, 0).astype(np.float32), np.append(box.high, np.inf).astype(np.float32)
        self.observation_space = gymnasium.spaces.Box(low, high, (4,), np.float32)
        self.action_space = self.pendulum.action_space
        self.m, self.steps = 1.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.pendulum.m, self.steps = self.m, 0
        return self.told(self.pendulum.reset(seed=seed, options=options)[0]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        seen, reward, *_ = self.pendulum.step(action)
        self.steps += 1
        return self.told(seen), float(reward), False, self.steps >= self.longest, {}

    def told(self, seen: np.ndarray) -> np.ndarray:
        return np.append(seen, self.m).astype(np.float32)
