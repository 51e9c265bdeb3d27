"""Tasks in environments that follow gymnasium's interface, and such an environment at play."""

from __future__ import annotations

import copy
import os
import sys
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractTasks, Moment
from gimbal.ops import stable_hash
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Gymnasium(AbstractTasks):
    """Task i is one episode of a registered environment, reset with a seed derived from (``seed``, i).

    ``tasks.environment=...`` gives policy, critic and evaluation the sizes of another environment; ``module:Name-v0`` is one of
    a user's own.
    """

    environment: str = "CartPole-v1"
    seed: int = 0
    size: int = 1_000_000

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        name = (self.environment, self.seed, index)
        seed = stable_hash("gymnasium", *name) % 2**31  # the range that all environments take
        return Task(id="/".join(map(str, name)), source=self.environment, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Registered(AbstractEnvironmentSpec):
    """An environment that gymnasium knows under this name; ``module:Name-v0`` is one of a user's own."""

    source: str = "CartPole-v1"

    def open(self) -> Environment:
        return Environment(self.source)


class Environment(AbstractEnvironment):
    """One live environment; it can be reset for any task of its source. ``interface`` says what it shows and takes."""

    def __init__(self, source: str) -> None:
        import gymnasium  # late: it is an extra, and takes a while

        if ":" in source and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # module:Name-v0 may be a user's own, beside which he works
        try:
            self._env = gymnasium.make(source, disable_env_checker=True)
        except (gymnasium.error.Error, ImportError) as error:
            raise ValueError(f"gymnasium does not make {source!r}: {error}") from error
        seen, acts = self._env.observation_space, self._env.action_space
        if not isinstance(seen, gymnasium.spaces.Box) or len(seen.shape) != 1:
            raise ValueError(
                f"{source} shows {seen}; a flat vector is wanted (register it with a wrapper that flattens)"
            )
        self._bounds, self._first, self.source, self.observations = None, 0, source, seen.shape[0]
        if isinstance(acts, gymnasium.spaces.Discrete):
            self.actions, self._first, does = int(acts.n), int(acts.start), "choices"
        elif isinstance(acts, gymnasium.spaces.Box) and len(acts.shape) == 1:
            self.actions, self._bounds, does = acts.shape[0], (acts.low, acts.high), "real actions"
        else:
            raise ValueError(f"{source} takes {acts}; a vector (Box) or a choice (Discrete) is wanted")
        self.interface = f"{self.observations} observations, {self.actions} {does}"

    @property
    def real(self) -> bool:
        """Whether actions are vectors, not choices."""
        return self._bounds is not None

    @property
    def bound(self) -> float:
        """The largest action that it takes, in any direction; of choices 1."""
        return 1.0 if self._bounds is None else float(np.abs(self._bounds).max())

    def reset(self, task: Task, seed: int) -> Float[np.ndarray, " O"]:
        """Its state is drawn by the task's own seed: all samples of a task begin alike, in every run."""
        return self._env.reset(seed=task.seed)[0].astype(np.float32)

    def step(self, action: Shaped[np.ndarray, " A"]) -> Moment:
        """Real actions are clipped to the bounds here and nowhere else: what is recorded is what was drawn."""
        if self._bounds is None:
            does = int(self._first + action[0])
        else:
            does = np.clip(action, *self._bounds)
        seen, reward, terminated, truncated, _ = self._env.step(does)
        return Moment(
            observation=seen.astype(np.float32),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
        )

    def fork(self) -> Environment:
        """By a copy of all its state, which environments in plain Python have; one with a simulator outside of it does not."""
        other = copy.copy(self)
        try:
            other._env = copy.deepcopy(self._env)
        except Exception as error:  # whatever an environment's own objects raise where they cannot be copied
            raise NotImplementedError(f"{self.source} cannot be copied: {error}") from error
        return other

    def close(self) -> None:
        self._env.close()
