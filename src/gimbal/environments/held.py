"""Environments for policies that decide every few steps: they show the action that holds until the next decision."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

from gimbal.environments.gym import opened


class Held(gymnasium.Wrapper):
    """``env``, for a policy that decides every ``every`` steps. Behind the observation stand the last action (0 before the first) and
    how long ago the last decision was, from 0, where the next one is due, to 1 - 1 / ``every``. An action is still played at each step,
    so that something quicker than the decisions may act too: to go on with the last one is for the policy.

    - ``every`` = 1: a decision is due at each step.

    ``env`` shows a vector and takes a vector of real actions.
    """

    def __init__(self, env: gymnasium.Env, every: int) -> None:
        super().__init__(env)
        seen, acts = env.observation_space, env.action_space
        boxes = isinstance(seen, gymnasium.spaces.Box) and isinstance(acts, gymnasium.spaces.Box)
        if not boxes or len(seen.shape) != 1 or len(acts.shape) != 1:
            raise ValueError(
                f"Held shows a vector, the last action with it, and {env} shows {seen} and takes {acts}: give it two vectors"
            )
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise ValueError(
                f"Held.every is {every!r}; it is how many steps a decision holds, a whole number of at least 1"
            )
        low, high = (
            np.concatenate([edge, bound, [x]])
            for edge, bound, x in ((seen.low, acts.low, 0), (seen.high, acts.high, 1))
        )
        self.observation_space = gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        self.every, self.since = every, 0
        self.held = np.zeros(acts.shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " O"], dict[str, Any]]:
        seen, info = self.env.reset(seed=seed, options=options)
        self.since, self.held = 0, np.zeros_like(self.held)
        return self._shown(seen), info

    def step(
        self, action: Float[np.ndarray, " A"]
    ) -> tuple[Float[np.ndarray, " O"], float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        self.held = np.array(action, np.float32)
        self.since = (self.since + 1) % self.every
        return self._shown(seen), float(reward), terminated, truncated, info

    def _shown(self, seen: Float[np.ndarray, " S"]) -> Float[np.ndarray, " O"]:
        return np.concatenate([seen, self.held, [self.since / self.every]]).astype(np.float32)


def holds(source: str) -> bool:
    """Whether an environment of this name shows the last action, and when a decision is due."""
    env = opened(source)
    while not isinstance(env, Held) and env is not env.unwrapped:
        env = env.env
    return isinstance(env, Held)
