"""A cart and its pole whose state somebody misreads to the policy."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float


class MisreadCart(gymnasium.Env):
    """gymnasium's CartPole-v1, cut off after 200 steps, of whose state the policy is told something else: each number with an error
    that stays, ``place``, ``speed``, ``angle`` and ``turn`` (attributes, 0 by default), and with one that is drawn anew in each step,
    up to ``noise`` times 1, 1, .1 and 1. The cart moves as it does: only what is told is wrong.

    - all attributes 0: CartPole-v1 with 200 steps.
    """

    longest: ClassVar[int] = 200

    def __init__(self) -> None:
        self.cart = gymnasium.make("CartPole-v1").unwrapped
        most = np.full(4, np.inf, np.float32)
        self.observation_space = gymnasium.spaces.Box(-most, most, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.place, self.speed, self.angle, self.turn = 0.0, 0.0, 0.0, 0.0
        self.noise, self.steps = 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        state, _ = self.cart.reset(seed=seed)
        self.steps = 0
        return self.told(state), {}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        state, reward, ended, _, _ = self.cart.step(int(action))
        self.steps += 1
        return self.told(state), float(reward), ended, not ended and self.steps >= self.longest, {}

    def told(self, state: Float[np.ndarray, " 4"]) -> Float[np.ndarray, " 4"]:
        drawn = self.noise * self.np_random.uniform(-1, 1, 4) * (1.0, 1.0, 0.1, 1.0)
        return (state + np.array([self.place, self.speed, self.angle, self.turn]) + drawn).astype(np.float32)
