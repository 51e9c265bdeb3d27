"""A cart whose speed nobody sees: what it did lately tells it."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float

STEP, FASTEST, WALL = 0.2, 2.0, 2.0  # seconds of a step; the largest speed; how far from the middle it can be


class HiddenCart(gymnasium.Env):
    """A cart of mass 1 on a track, pushed by a force from -1 to 1, that should stand in the middle: the reward of a step is
    - (x^2 + v^2 / 10), with x and v the place and speed where it ends. It is cut off after 40 steps.

    Observed is a history: the last ``frames`` places, then the ``frames`` - 1 forces between them, each from the oldest to the newest,
    and 0 for what was before the start. With 1 frame the speed is unknown; 2 tell it, and anything older is of no use.

    ``begin`` (an option of ``reset``) is the first place and speed, else drawn from -1.5 to 1.5 and -.5 to .5.
    """

    longest: ClassVar[int] = 40

    def __init__(self) -> None:
        self.frames = 16
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.place, self.speed = 0.0, 0.0
        self.places: list[float] = []
        self.forces: list[float] = []

    @property
    def observation_space(self) -> gymnasium.spaces.Box:  # pyrefly: ignore[bad-override]; ``frames`` may be set after it is made
        if self.frames < 1:
            raise ValueError(f"HiddenCart has frames {self.frames}; it shows at least 1 place")
        return gymnasium.spaces.Box(-WALL, WALL, (2 * self.frames - 1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = self.np_random.uniform(-1, 1, 2) * (1.5, 0.5)
        self.place, self.speed = (float(x) for x in (options or {}).get("begin", drawn))
        self.places, self.forces = [self.place], []
        return self.seen, {}

    def step(self, action: Float[np.ndarray, " 1"]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        force = min(max(float(action[0]), -1.0), 1.0)
        self.speed = min(max(self.speed + STEP * force, -FASTEST), FASTEST)
        self.place = min(max(self.place + STEP * self.speed, -WALL), WALL)
        self.places.append(self.place)
        self.forces.append(force)
        reward = -(self.place**2 + 0.1 * self.speed**2)
        return self.seen, reward, False, len(self.forces) >= self.longest, {}

    @property
    def seen(self) -> Float[np.ndarray, " O"]:
        places, forces = np.zeros(self.frames, np.float32), np.zeros(self.frames - 1, np.float32)
        last = self.places[-self.frames :]
        places[self.frames - len(last) :] = last
        if recent := self.forces[-len(forces) :] if len(forces) else []:
            forces[len(forces) - len(recent) :] = recent
        return np.concatenate([places, forces])
