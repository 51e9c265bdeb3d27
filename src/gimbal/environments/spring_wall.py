"""A mass that is pushed against a stiff wall, and a filter that lets nobody put more energy into it than a tank holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Float

STEP, PLACE = 0.02, 1.0  # seconds of a step; where the wall begins
WANTED, MOST = 5.0, 10.0  # newtons: the force that the wall is to feel, and the largest push
FARTHEST = 5.0  # places and speeds that are shown
HALVINGS = 60


@runtime_checkable
class Port(Protocol):
    """What an environment tells of its port, where the policy's force acts: by this action, the work of the next step on it, and what
    the step dissipates, in joules."""

    def work(self, action: Float[np.ndarray, " A"]) -> tuple[float, float]: ...


class SpringWall(gymnasium.Env):
    """A mass of 1 kg on a line, with damping .1, beside a wall at 1 whose force is ``stiffness`` (200) times how deep it is pressed. An
    action is a force, from -10 to 10 N. A step of .02 s costs how far the wall's force is from 5 N, over 5. It is cut off after 200
    steps.

    Steps keep the energy exactly: kinetic and elastic energy change by the work of the force minus what is damped, for the wall's
    force is the change of its energy over the way (a discrete gradient) and damping acts on the mean speed.

    Observed: (place, speed, the wall's force over 5). ``begin`` (an option of ``reset``) is (place, speed), else at rest from 0 to .5.
    """

    longest: ClassVar[int] = 200

    def __init__(self) -> None:
        most = np.array([FARTHEST, FARTHEST, np.inf], np.float32)
        self.observation_space = gymnasium.spaces.Box(-most, most, (3,), np.float32)
        self.action_space = gymnasium.spaces.Box(-MOST, MOST, (1,), np.float32)
        self.stiffness, self.damping = 200.0, 0.1
        self.state, self.steps = (0.0, 0.0), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        place = float(self.np_random.uniform(0, 0.5))
        self.state, self.steps = (options or {}).get("begin", (place, 0.0)), 0
        return self.seen, {}

    def step(self, action: Float[np.ndarray, " 1"]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.state = self._after(float(action[0]))
        self.steps += 1
        off = abs(self.pressed - WANTED) / WANTED
        return self.seen, -off, False, self.steps >= self.longest, {}

    def work(self, action: Float[np.ndarray, " 1"]) -> tuple[float, float]:
        force = float(action[0])
        speed = (self.state[1] + self._after(force)[1]) / 2
        return force * speed * STEP, self.damping * speed**2 * STEP

    @property
    def pressed(self) -> float:
        """The wall's force."""
        return self.stiffness * max(0.0, self.state[0] - PLACE)

    @property
    def energy(self) -> float:
        return self.state[1] ** 2 / 2 + self._elastic(self.state[0])

    @property
    def seen(self) -> Float[np.ndarray, " 3"]:
        kept = np.clip(self.state, -FARTHEST, FARTHEST)
        return np.array([*kept, self.pressed / WANTED], np.float32)

    def _elastic(self, place: float) -> float:
        return self.stiffness * max(0.0, place - PLACE) ** 2 / 2

    def _after(self, force: float) -> tuple[float, float]:
        """Place and speed one step later: where the equation of the mean speed holds, which rises with it."""
        place, speed = self.state

        def lacking(mean: float) -> float:
            way = STEP * mean
            wall = self._slope(place, place + way)
            return 2 * (mean - speed) - STEP * (force - self.damping * mean - wall)

        mean = halved(lacking, -1e3, 1e3)
        return place + STEP * mean, 2 * mean - speed

    def _slope(self, here: float, there: float) -> float:
        """The wall's mean force between two places."""
        if abs(there - here) < 1e-12:
            return self.stiffness * max(0.0, here - PLACE)
        return (self._elastic(there) - self._elastic(here)) / (there - here)


class EnergyTank(gymnasium.Wrapper):
    """Scales an action down where it would draw more energy than a tank holds (Passive safe RL, arXiv:2503.00287).

    With W(a) the work of a step on ``env`` and D what it dissipates, both told by ``env.work``, ``energy`` joules at the start:

        a' = k a,   k the largest of [0, 1], up to halving, with W(k a) <= E - ``least``
        E <- min(``most``, E - W(a') + ``harvest`` D)

    So E never falls below ``least``: whatever the policy does, it puts in at most ``energy`` - ``least`` and what was harvested.
    The tank's energy and the action that was played stand behind the observation: what was proposed is the policy's own record.
    ``info["cost"]`` is 1 where the action was changed, so that a policy can be trained to leave it alone (``PricedCost``).

    - ``energy`` = inf: no filter.
    - Actions that take energy out (W <= 0) are never changed.

    Confidence: abstract only, for the paper's constants; tanks are textbook; ours: scaling alone, no damping is added.
    """

    def __init__(
        self, env: gymnasium.Env, energy: float = 0.5, least: float = 0.05, most: float = 5.0, harvest: float = 0.0
    ) -> None:
        super().__init__(env)
        seen, acts = env.observation_space, env.action_space
        boxes = isinstance(seen, gymnasium.spaces.Box) and isinstance(acts, gymnasium.spaces.Box)
        if not boxes or len(seen.shape) != 1 or not hasattr(env.unwrapped, "work"):
            raise ValueError(
                f"EnergyTank filters forces of an environment that tells their work (work(action) -> (joules of the step, joules "
                f"dissipated)) and shows a vector, and {env} shows {seen}, takes {acts} and "
                f"{'tells' if hasattr(env.unwrapped, 'work') else 'does not tell'} it"
            )
        if not 0 <= least <= energy or not 0 <= harvest <= 1 or most < least:
            raise ValueError(
                f"EnergyTank has energy {energy}, least {least}, most {most} and harvest {harvest}: least is 0 or above, and at most "
                "energy and most; harvest is a share"
            )
        self.begins, self.least, self.most, self.harvest = energy, least, max(most, energy), harvest
        self.energy = energy
        self.played: np.ndarray = np.zeros(acts.shape, np.float32)
        low, high = np.concatenate([seen.low, [0], acts.low]), np.concatenate([seen.high, [np.inf], acts.high])
        self.observation_space = gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        seen, info = self.env.reset(seed=seed, options=options)
        self.energy, self.played = self.begins, np.zeros_like(self.played)
        return self._shown(seen), info

    def step(self, action: Float[np.ndarray, " A"]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        action, port = np.array(action, np.float64), self.port
        share, room = 1.0, self.energy - self.least
        if port.work(action)[0] > room:
            share = halved(lambda k: port.work(k * action)[0] - room, 0.0, 1.0)
        self.played = share * action
        work, lost = port.work(self.played)
        self.energy = min(self.most, self.energy - work + self.harvest * lost)
        seen, reward, ended, cut, info = self.env.step(self.played)
        told = {"cost": float(share < 1), "proposed": action, "executed": self.played, "energy": self.energy}
        return self._shown(seen), float(reward), ended, cut, {**info, **told}

    @property
    def port(self) -> Port:
        return self.env.unwrapped  # pyrefly: ignore[bad-return]

    def _shown(self, seen: Float[np.ndarray, " S"]) -> Float[np.ndarray, " O"]:
        level = self.energy if math.isfinite(self.energy) else 0.0
        return np.concatenate([seen, [level], self.played]).astype(np.float32)


def tanked_wall() -> EnergyTank:
    """``tasks.environment=gimbal.environments.spring_wall:tanked_wall``."""
    return EnergyTank(SpringWall())


def halved(rises: Callable[[float], float], low: float, high: float) -> float:
    """A place up to which, by halving, this is at most 0: ``rises(low)`` is at most 0, ``rises(high)`` above."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) <= 0 else (low, middle)
    return low
