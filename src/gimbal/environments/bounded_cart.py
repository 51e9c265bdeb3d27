"""A cart on a track that is paid to go where it must not."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.environments.held import Held

STEP, FASTEST = 0.1, 2.0  # seconds of a step; the largest speed
BLOW = 5  # steps that a blow lasts
EDGE, WALL = 1.0, 1.5  # how far from the middle it may be, and can be


class BoundedCart(gymnasium.Env):
    """A cart of mass 1 on a track (a double integrator), pushed by a force from -1 to 1. The reward of a step is the place where it
    ends, so that it pays to go right as far as the wall at 1.5; the cost (``info["cost"]``) is 1 wherever the cart is further than 1
    from the middle. Nothing ends there: it is cut off after 100 steps.

    From speed v it takes v^2 / 2 to stop, so places inside the bounds are lost where the cart is too fast: ``feasible``.

    ``gust`` (0) is the size of blows, forces that last five steps, one way, the other or neither, drawn anew each time. With
    ``fragile`` 1 (0) the episode ends where the cart is further out than it may be.

    Observed: (place, speed). ``begin`` (an option of ``reset``) is where it starts, else near the middle and slow, where it can
    always be kept inside.
    """

    longest: ClassVar[int] = 100

    def __init__(self) -> None:
        most = np.array([WALL, FASTEST], np.float32)
        self.observation_space = gymnasium.spaces.Box(-most, most, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.state, self.steps = np.zeros(2), 0
        self.gust, self.blow, self.fragile = 0.0, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = self.np_random.uniform(-1, 1, 2) * (0.8, 0.5)
        self.state, self.steps = np.array((options or {}).get("begin", drawn), float), 0
        return self.state.astype(np.float32), {"cost": self.cost}

    def step(self, action: Float[np.ndarray, " 1"]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.gust and self.steps % BLOW == 0:
            self.blow = int(self.np_random.integers(-1, 2))
        self.state = pushed(self.state[None], np.clip(action, -1, 1) + self.gust * self.blow)[0]
        self.steps += 1
        ended, cut = bool(self.fragile and self.cost), self.steps >= self.longest
        return self.state.astype(np.float32), float(self.state[0]), ended, cut, {"cost": self.cost}

    @property
    def cost(self) -> float:
        return float(abs(self.state[0]) > EDGE)


def held_cart() -> Held:
    """The cart for a policy that decides once a second, every ten steps."""
    return Held(BoundedCart(), every=10)


def pushed(state_K2: Float[np.ndarray, "K 2"], force_K: Float[np.ndarray, " K"]) -> Float[np.ndarray, "K 2"]:
    """The states one step later. A wall stops the cart."""
    speed_K = np.clip(state_K2[:, 1] + STEP * force_K, -FASTEST, FASTEST)
    place_K = state_K2[:, 0] + STEP * speed_K
    return np.stack([place_K.clip(-WALL, WALL), np.where(np.abs(place_K) < WALL, speed_K, 0)], 1)


def feasible(state_K2: Float[np.ndarray, "K 2"]) -> Bool[np.ndarray, " K"]:
    """Whether a cart in this state can be kept inside the bounds for ever: by the best brake, which is the strongest until it stands.

    Exact. A test holds it against value iteration on a grid.
    """
    state_K2 = np.array(state_K2, float)
    kept_K = np.abs(state_K2[:, 0]) <= EDGE
    for _ in range(round(FASTEST / STEP) + 1):
        state_K2 = pushed(state_K2, np.clip(-state_K2[:, 1] / STEP, -1, 1))
        kept_K &= np.abs(state_K2[:, 0]) <= EDGE
    return kept_K


def out_of_bounds(next_KO: Float[Tensor, "K O"]) -> Bool[Tensor, " K"]:
    """Whether a cart that is observed so is further out than it may be: the rule of a ``Guardian``, and of a ``Reflex``."""
    return next_KO[:, 0].abs() > EDGE


def grid(places: int = 61, speeds: int = 61) -> Float[np.ndarray, "K 2"]:
    """States evenly over all there are."""
    place, speed = np.meshgrid(np.linspace(-WALL, WALL, places), np.linspace(-FASTEST, FASTEST, speeds))
    return np.stack([place.ravel(), speed.ravel()], 1)
