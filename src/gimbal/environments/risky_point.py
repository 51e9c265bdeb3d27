"""A point whose shortest way home leads through a place where accidents happen."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float

STRIDE, SHAKE = 0.1, 0.02  # of an action of 1; the most that chance adds to an action
HOME = 0.1  # how near to (0, 0) it is at home
MIDDLE, RADIUS = np.array([0.5, 0.5]), 0.3  # of the disc
ODDS = 0.1  # of an accident in the middle
REACH = 2.0  # how far out it can be, in either direction


class RiskyPoint(gymnasium.Env):
    """A point walks home to (0, 0), by a tenth of an action a step, shaken a little. A step costs its distance from home and .1 more.
    In the disc around (.5, .5) of radius .3 an accident costs ``harm`` (10) more, with a chance of .1 exp(-4 d^2 / .09), d from the
    middle: 1 a step in the middle, on average. It starts beyond the disc, at places up to (1, 1), ends at home, and is cut off after
    100 steps.

    Observed: the place. ``info["cost"]`` is 1 in the disc, else 0. ``begin`` (an option of ``reset``) is where it starts.
    """

    longest: ClassVar[int] = 100

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-REACH, REACH, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.place, self.steps, self.harm = np.ones(2), 0, 10.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps = np.array((options or {}).get("begin", MIDDLE), float), 0
        while "begin" not in (options or {}) and self.inside:
            self.place = self.np_random.uniform(0.3, 1.0, 2)
        return self.place.astype(np.float32), {"cost": float(self.inside)}

    def step(self, action: Float[np.ndarray, " 2"]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        shake_2 = self.np_random.uniform(-SHAKE, SHAKE, 2)
        self.place = np.clip(self.place + STRIDE * (np.clip(action, -1, 1) + shake_2), -REACH, REACH)
        self.steps += 1
        away, chance = float(np.linalg.norm(self.place)), float(self.np_random.random())
        struck = self.inside and chance < ODDS * np.exp(-4 * np.square(self.place - MIDDLE).sum() / RADIUS**2)
        reward = -away - 0.1 - (self.harm if struck else 0.0)
        home = away < HOME
        return (
            self.place.astype(np.float32),
            reward,
            home,
            self.steps >= self.longest and not home,
            {"cost": float(self.inside)},
        )

    @property
    def inside(self) -> bool:
        return bool(np.linalg.norm(self.place - MIDDLE) < RADIUS)
