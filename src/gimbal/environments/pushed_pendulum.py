"""A pendulum that two policies turn: one by its motor, the other by a torque from outside."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float

TORQUE, FASTEST, GRAVITY, STEP = 2.0, 8.0, 10.0, 0.05  # of the motor; of the speed; of the earth; seconds of a step


class PushedPendulum(gymnasium.Env):
    """gymnasium's Pendulum-v1 (mass and length 1, cut off after 200 steps; the same reward) with a torque from outside. It begins at an
    angle of at most ``spread``, by default any, and a speed of at most that, or 1. Two numbers act: the motor's torque, from -2 to
    2, and the disturber's push, from -1 to 1, which acts ``reach`` times as strongly and costs nothing.

    Pushes of its own, for tests and for training by chance, are added (torques, by attributes, 0 by default): ``steady``, the same all
    the time; ``wave``, the size of a sine of 40 steps; ``gust``, the size of blows that last ten steps, one way, the other way or
    neither, drawn anew each time. The side of ``steady`` and the phase of ``wave`` are drawn at the start.

    Observed: (cos, sin, speed), upright being angle 0.
    """

    longest: ClassVar[int] = 200

    def __init__(self) -> None:
        most = np.array([1, 1, FASTEST], np.float32)
        self.observation_space = gymnasium.spaces.Box(-most, most, (3,), np.float32)
        strong = np.array([TORQUE, 1], np.float32)
        self.action_space = gymnasium.spaces.Box(-strong, strong, (2,), np.float32)
        self.reach, self.spread = 1.0, math.pi
        self.steady, self.wave, self.gust = 0.0, 0.0, 0.0
        self.angle, self.speed, self.steps = 0.0, 0.0, 0
        self.side, self.phase, self.blow = 1.0, 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = self.np_random.uniform(-1, 1, 2) * (self.spread, min(self.spread, 1.0))
        self.angle, self.speed = (float(x) for x in (options or {}).get("begin", drawn))
        self.side, self.phase, self.steps = float(self.np_random.choice((-1, 1))), self.np_random.uniform(0, 40), 0
        return self.seen, {}

    def step(self, action: Float[np.ndarray, " 2"]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        torque = min(max(float(action[0]), -TORQUE), TORQUE)
        push = self.reach * min(max(float(action[1]), -1.0), 1.0) + self.own_push()
        angle = (self.angle + math.pi) % (2 * math.pi) - math.pi
        reward = -(angle**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        faster = self.speed + (1.5 * GRAVITY * math.sin(self.angle) + 3 * (torque + push)) * STEP
        self.speed = min(max(faster, -FASTEST), FASTEST)
        self.angle += self.speed * STEP
        self.steps += 1
        return self.seen, reward, False, self.steps >= self.longest, {}

    def own_push(self) -> float:
        """The torque of this step that no policy chooses."""
        if self.steps % 10 == 0:
            self.blow = int(self.np_random.integers(-1, 2))
        sine = math.sin(2 * math.pi * (self.steps + self.phase) / 40)
        return self.steady * self.side + self.wave * sine + self.gust * self.blow

    @property
    def seen(self) -> Float[np.ndarray, " 3"]:
        return np.array([math.cos(self.angle), math.sin(self.angle), self.speed], np.float32)
