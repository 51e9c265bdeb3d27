"""A point on its way home through a marsh: who steps into it does not get out again."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float

STRIDE, HOME, REACH = 0.1, 0.15, 1.5  # of an action of 1; how near to (0, 0) it is at home; how far out it can be
MARSHES = np.array([[0.5, 0.3], [0.1, 0.7], [1.0, 0.1], [-0.5, 0.3]])  # their middles
RADIUS = 0.17  # of each


class StickyPoint(gymnasium.Env):
    """A point walks home to (0, 0), by a tenth of an action a step. A step costs its distance from home and .1 more. Whoever ends a
    step in a marsh, one of four discs of radius .17, stays there until the episode ends, whatever it does. It starts at places around
    (.6, 1.1), ends at home, and is cut off after 100 steps.

    Observed: the place. ``begin`` (an option of ``reset``) is where it starts.
    """

    longest: ClassVar[int] = 100

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-REACH, REACH, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.place, self.steps = np.ones(2), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        anywhere = np.array([0.6, 1.1]) + self.np_random.uniform(-0.3, 0.3, 2)
        self.place, self.steps = np.array((options or {}).get("begin", anywhere), float), 0
        return self.place.astype(np.float32), {}

    def step(self, action: Float[np.ndarray, " 2"]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self.stuck:
            self.place = np.clip(self.place + STRIDE * np.clip(action, -1, 1), -REACH, REACH)
        self.steps += 1
        away = float(np.linalg.norm(self.place))
        home, info = away < HOME, {"is_success": away < HOME}
        return self.place.astype(np.float32), -away - 0.1, home, self.steps >= self.longest and not home, info

    @property
    def stuck(self) -> bool:
        return bool((np.linalg.norm(self.place - MARSHES, axis=-1) < RADIUS).any())
