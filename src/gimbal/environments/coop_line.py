"""Agents on a line that have to part among places that all of them see, in one move."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

OFFSETS = np.array([-0.6, 0.0, 0.6])  # of the places, from a middle within .3 of 0; there are as many agents
NEAR = 0.2  # an agent this close to a place covers it


class CoopLine(gymnasium.Env):
    """Three agents see where three places on a line are, and each goes to a point, once: MPE's simple_spread on a line, in one move.
    The reward is minus the mean over places of the distance to the nearest agent; it is a success if that is below .2 for all of them.

    Observations (the middle place) and actions (where to go, in [-1, 1]) are those of the agents, one after another. They all see the
    same, and nothing tells them apart: who goes where can be agreed on, but not known.
    """

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, OFFSETS.shape, np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, OFFSETS.shape, np.float32)
        self.middle = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " 3"], dict[str, Any]]:
        super().reset(seed=seed)
        self.middle = self.np_random.uniform(-0.3, 0.3)
        return shown(self.middle), {}

    def step(
        self, action: Float[np.ndarray, " 3"]
    ) -> tuple[Float[np.ndarray, " 3"], float, bool, bool, dict[str, Any]]:
        off_P = uncovered(np.clip(action, -1, 1), self.middle)
        return shown(self.middle), -float(off_P.mean()), True, False, {"is_success": bool((off_P < NEAR).all())}


def shown(middle: float) -> Float[np.ndarray, " 3"]:
    return np.full(OFFSETS.shape, middle, np.float32)


def uncovered(point_A: Float[np.ndarray, " 3"], middle: float) -> Float[np.ndarray, " 3"]:
    """How far the nearest agent is from each place."""
    return np.abs(point_A - (middle + OFFSETS)[:, None]).min(1)


def parted(seen: Float[np.ndarray, " 3"], generator: np.random.Generator) -> Float[np.ndarray, " 3"]:
    """Each goes to another place, off by .05; who goes where is drawn anew. Agents that each draw a place by themselves cover all in 2
    of 9 cases."""
    off_A = 0.05 * generator.standard_normal(OFFSETS.shape)
    return np.clip(float(seen[0]) + generator.permutation(OFFSETS) + off_A, -1, 1)
