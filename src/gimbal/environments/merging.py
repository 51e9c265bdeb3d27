"""A car that merges into traffic, among drivers or among recorded cars that react to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float

from gimbal.ops import philox

STEP, LENGTH = 0.4, 4.0  # seconds of a step; metres of a car
FASTEST, PUSH, BRAKE, COMFORT = (
    10.0,
    2.0,
    5.0,
    3.0,
)  # m/s; the most that a car speeds up, brakes, and cares to brake, in m/s^2
CARS, RAMP, REACH = 10, 40.0, 25.0  # cars on the road; metres to the merge; how near a merging car is seen
PUSHES = (-5.0, -2.0, 0.0, 1.0, 2.0)  # what the merging car can do, in m/s^2
CRASH = 10.0  # what a crash costs, in tens of metres
UNSEEN = 1_000_000  # the first scene that no log holds
Car = Float[np.ndarray, "2"]  # (place, speed)


@dataclass(frozen=True)
class Scene:
    """The merging car, whose lane ends at place 0, and the cars on the road, the first in front."""

    own: Car
    place_C: Float[np.ndarray, " C"]
    speed_C: Float[np.ndarray, " C"]


@dataclass(frozen=True)
class Log:
    """What was recorded: each scene, and how the merging car and those on the road pushed in it."""

    scenes: tuple[Scene, ...]
    own_S: Float[np.ndarray, " S"]
    push_SC: Float[np.ndarray, "S C"]

    def __deepcopy__(self, memo: dict[int, Any]) -> Log:
        return self  # nobody changes it, and it is most of what a copy of the environment would cost


@dataclass(frozen=True)
class Response:
    """What cars do by what they see, a = w tanh(U x + b) + w_0: a network of one layer, whose U and b are drawn and whose w is the
    ridge regression on recorded pushes."""

    inner_FU: Float[np.ndarray, "F U"]
    shift_U: Float[np.ndarray, " U"]
    outer_W: Float[np.ndarray, " W"]  # one more than units, for w_0

    @classmethod
    def fitted(
        cls, seen_KF: Float[np.ndarray, "K F"], push_K: Float[np.ndarray, " K"], units: int = 256, ridge: float = 0.1
    ) -> Response:
        draws = philox("response", units)
        inner_FU, shift_U = draws.standard_normal((seen_KF.shape[1], units)), draws.uniform(-2, 2, units)
        hidden_KW = _hidden(seen_KF, inner_FU, shift_U)
        gram_WW = hidden_KW.T @ hidden_KW + ridge * np.eye(units + 1)
        return cls(inner_FU, shift_U, np.linalg.solve(gram_WW, hidden_KW.T @ push_K))

    def __call__(self, seen_CF: Float[np.ndarray, "C F"]) -> Float[np.ndarray, " C"]:
        return _hidden(seen_CF, self.inner_FU, self.shift_U) @ self.outer_W


def _hidden(
    seen_KF: Float[np.ndarray, "K F"], inner_FU: Float[np.ndarray, "F U"], shift_U: Float[np.ndarray, " U"]
) -> Float[np.ndarray, "K W"]:
    return np.concatenate([np.tanh(seen_KF @ inner_FU + shift_U), np.ones((len(seen_KF), 1))], 1)


@dataclass(frozen=True)
class Reacting:
    """Recorded cars that do as they did, and react to what is otherwise now (after PerlAD, arXiv:2603.14908).

        a_c = a_c^log + weight (f(x_c) - f(x_c^log)),   between the strongest brake and push

    x_c is what car c sees now, x_c^log what it saw at that time of its log, and f what a car does by what it sees, fitted to all logs.
    What f does not explain of a driver stays as recorded.

    - ``weight`` = 0: the log is replayed, whatever the merging car does.
    - the merging car drives as it did: the log, whatever f is.
    - ``weight`` = 1 and drivers who go by what f sees alone: they react as they would have.

    Confidence: abstract (of the paper); ours: the difference to the log, and an f of one layer, where the paper predicts trajectories
    by the ego's whole plan; one dimension, so no lateral path that is imitated.
    """

    response: Callable[[Float[np.ndarray, "C F"]], Float[np.ndarray, " C"]]
    weight: float = 1.0

    def __call__(self, scene: Scene, log: Log, step: int) -> Float[np.ndarray, " C"]:
        push_C = log.push_SC[step]
        if not self.weight:
            return push_C
        otherwise_C = self.response(seen(scene)) - self.response(seen(log.scenes[step]))
        return np.clip(push_C + self.weight * otherwise_C, -BRAKE, PUSH)


class Merging(gymnasium.Env):
    """A car has 40 m until its lane ends in another, on which ten cars follow each other with gaps that are too small to merge
    into: someone must let it in. Each step of .4 s it takes one of the ``PUSHES``. The reward is the tens of metres that it gets ahead,
    less a little for strong pushes, and -10 for a crash, which ends the episode; 32 steps are all. ``is_success``: no crash.

    The other cars are drivers (``logs`` = 0), each of whom lets it in if it is so much ahead of them as each wants, less so near the
    merge; or the cars of so many logs (``logs``, 200), whose merging cars were driven by a rule, as ``Reacting`` moves them with the
    weight ``reacts``: 1, or 0 for a plain replay. What is learned from the logs is learned once, in two seconds. No log has a scene of
    the drivers' world.

    Observed: (place, speed), and (distance, relative speed, push) of the next car ahead and the two behind, all of size 1 or so.
    ``...merging:Merging@logs=0``, ``@reacts=0``.
    """

    longest: ClassVar[int] = 32

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (11,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(PUSHES))
        self.logs, self.reacts, self.steps = 200, 1.0, 0
        self.scene, self.wants_C = begun(UNSEEN)[:2]
        self.push_C = np.zeros(CARS)
        self.log: Log | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " 11"], dict[str, Any]]:
        super().reset(seed=seed)
        if self.logs < 0 or self.logs % 1 or not 0 <= self.reacts <= 1:
            raise ValueError(
                f"Merging has logs {self.logs} and reacts {self.reacts}; logs counts recorded scenes (0: among drivers), and reacts is "
                "from 0, a plain replay, to 1"
            )
        number = int(self.np_random.integers(self.logs or UNSEEN)) + (0 if self.logs else UNSEEN)
        self.scene, self.wants_C = begun(number)[:2]
        self.log = recorded(number) if self.logs else None
        self.steps = 0
        self.push_C = self._others()
        return self.seen, {}

    def step(self, action: int | np.integer) -> tuple[Float[np.ndarray, " 11"], float, bool, bool, dict[str, Any]]:
        return self.go(PUSHES[int(action)])

    def go(self, push: float) -> tuple[Float[np.ndarray, " 11"], float, bool, bool, dict[str, Any]]:
        """One step with any push."""
        before = self.scene.own[0]
        self.scene = moved(self.scene, push, self.push_C)
        self.steps += 1
        crash, over = crashed(self.scene), self.steps >= self.longest
        if not over:
            self.push_C = self._others()
        reward = (self.scene.own[0] - before) / 10 - 0.0025 * push**2 - CRASH * crash
        return self.seen, float(reward), crash, over and not crash, {"is_success": not crash}

    def _others(self) -> Float[np.ndarray, " C"]:
        """How the cars on the road push in this scene."""
        if self.log is None:
            return drivers(self.scene, self.wants_C)
        return Reacting(response(self.logs), self.reacts)(self.scene, self.log, self.steps)

    @property
    def seen(self) -> Float[np.ndarray, " 11"]:
        return shown(self.scene, self.push_C)


def shown(scene: Scene, push_C: Float[np.ndarray, " C"]) -> Float[np.ndarray, " 11"]:
    """What the merging car sees."""
    own, place_C = scene.own, scene.place_C
    first = int((place_C >= own[0]).sum())  # behind it
    rows: list[tuple[float, ...]] = [(own[0] / 20, own[1] / 5)]
    for car in (first - 1, first, first + 1):
        if 0 <= car < CARS:
            away = np.clip((place_C[car] - own[0]) / 10, -3, 3)
            rows.append((away, (scene.speed_C[car] - own[1]) / 3, push_C[car] / 2))
        else:
            rows.append((3.0 if car < 0 else -3.0, 0.0, 0.0))
    return np.concatenate(rows).astype(np.float32)


def begun(number: int) -> tuple[Scene, Float[np.ndarray, " C"], float]:
    """The first scene of this number; by how many metres each driver wants the merging car to be ahead; and what the driver of the
    merging car wants of those."""
    draws = philox("merging", number)
    own = np.array([draws.uniform(-4, 4) - RAMP, draws.uniform(6, 9)])
    place_C = draws.uniform(28, 42) - RAMP - np.cumsum(draws.uniform(9.5, 13.5, CARS))
    return Scene(own, place_C, draws.uniform(7, 8, CARS)), draws.uniform(-5, 9, CARS), float(draws.uniform(-3, 6))


def moved(scene: Scene, push: float, push_C: Float[np.ndarray, " C"]) -> Scene:
    """One step later. No car drives backwards, or faster than ``FASTEST``."""

    def on(place: Any, speed: Any, push: Any) -> tuple[Any, Any]:
        after = np.clip(speed + STEP * push, 0.0, FASTEST)
        return place + STEP * (speed + after) / 2, after

    place, speed = scene.own
    return Scene(np.array(on(place, speed, push)), *on(scene.place_C, scene.speed_C, push_C))


def crashed(scene: Scene) -> bool:
    return bool(scene.own[0] > -LENGTH / 2 and (np.abs(scene.place_C - scene.own[0]) < LENGTH).any())


def free(speed: Any) -> Any:
    """The push of a driver with nobody in front."""
    return PUSH * (1 - (speed / FASTEST) ** 4)


def following(speed: Any, gap: Any, ahead: Any) -> Any:
    """The push of a driver behind a car of the speed ``ahead`` (intelligent driver model)."""
    wanted = 2.0 + 0.6 * speed + speed * (speed - ahead) / 5.0
    return free(speed) - PUSH * (np.maximum(wanted, 0.0) / np.maximum(gap, 0.3)) ** 2


def lead_of(scene: Scene) -> Float[np.ndarray, " C"]:
    """How far the merging car will be ahead of each car in a second."""
    return scene.own[0] + scene.own[1] - scene.place_C - scene.speed_C


def drivers(scene: Scene, wants_C: Float[np.ndarray, " C"]) -> Float[np.ndarray, " C"]:
    """What the drivers on the road do: they follow the car in front, and the merging car if it is enough ahead."""
    (place, speed), place_C, speed_C = scene.own, scene.place_C, scene.speed_C
    push_C = free(speed_C)
    push_C[1:] = np.minimum(push_C[1:], following(speed_C[1:], place_C[:-1] - place_C[1:] - LENGTH, speed_C[:-1]))
    before = np.clip(-place / RAMP, 0.0, 1.0)
    lets_C = (lead_of(scene) > wants_C * before) & (place - place_C > -LENGTH * (before > 0)) & (place > -REACH)
    hardest = BRAKE if place > -LENGTH / 2 else COMFORT
    behind_C = np.maximum(following(speed_C, place - place_C - LENGTH, speed), -hardest)
    return np.clip(np.where(lets_C, np.minimum(push_C, behind_C), push_C), -BRAKE, PUSH)


def merger(scene: Scene, wants: float) -> float:
    """What the recorded driver of the merging car does: it follows whoever will be so much ahead, and stops if there is no room."""
    (place, speed), place_C = scene.own, scene.place_C
    push, before = free(speed), np.clip(-place / RAMP, 0.0, 1.0)
    ahead_C = (-lead_of(scene) > wants * before) & (place_C > place - LENGTH)
    if ahead_C.any():
        behind = following(speed, place_C[ahead_C] - place - LENGTH, scene.speed_C[ahead_C]).min()
        push = min(push, behind if place > -COMFORT else max(behind, -COMFORT))
    soon_C = np.abs(place_C + scene.speed_C / 2 - place - speed / 2)
    if -15 < place < 0 and (soon_C < LENGTH + 1).any():
        push = min(push, -(speed**2) / 2 / max(-place - 1, 0.5))
    return float(np.clip(push, -BRAKE, PUSH))


@cache
def recorded(number: int) -> Log:
    """The log of this number: drivers, one of whom merges."""
    scene, wants_C, wants = begun(number)
    scenes, own, others = [], [], []
    for _ in range(Merging.longest):
        scenes.append(scene)
        own.append(merger(scene, wants))
        others.append(drivers(scene, wants_C))
        scene = moved(scene, own[-1], others[-1])
    return Log(tuple(scenes), np.array(own), np.stack(others))


def seen(scene: Scene) -> Float[np.ndarray, "C 6"]:
    """What each driver goes by: its speed; how far the car in front is, and how much faster; and the merging car."""
    (place, speed), place_C, speed_C = scene.own, scene.place_C, scene.speed_C
    gap_C, faster_C = np.full_like(place_C, 20.0), np.zeros_like(place_C)
    gap_C[1:], faster_C[1:] = np.minimum(place_C[:-1] - place_C[1:], 20.0), speed_C[:-1] - speed_C[1:]
    lead_C, from_merge_C = np.clip(place - place_C, -12.0, 20.0), np.full_like(place_C, np.clip(place, -RAMP, 10.0))
    parts = (speed_C / 3, gap_C / 6, faster_C / 2, lead_C / 5, (speed - speed_C) / 3, from_merge_C / 15)
    return np.stack(parts, 1)


@cache
def response(logs: int) -> Response:
    """What drivers do by what they see, as the first so many logs have it."""
    found = [recorded(number) for number in range(logs)]
    seen_KF = np.concatenate([seen(scene) for log in found for scene in log.scenes])
    return Response.fitted(seen_KF, np.concatenate([log.push_SC.ravel() for log in found]))
