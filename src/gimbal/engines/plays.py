"""An episode in progress, and the calls of its environment, which may raise or hang."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from gimbal.config.own import raised
from gimbal.engines.early_stop import Trace
from gimbal.environments.apart import Apart, Elsewhere
from gimbal.environments.base import Moment
from gimbal.environments.gym import AbstractActed, Environment, Registered
from gimbal.ops.deadline import Call, Hung, Late
from gimbal.records import Task


@dataclass(kw_only=True)
class Play:
    """An episode in progress, or several on end where the environment goes on by itself: the task and seed it was reset with, and its
    history since."""

    environment: AbstractActed
    task: Task
    seed: int
    observation: np.ndarray  # the present one
    actions: list[Tensor] = field(default_factory=list)  # as the environment was given them
    noise_A: Tensor | None = None  # of the last action before the row that goes on, or will go on; none at its start
    earned: float = 0.0  # so far in the episode
    cost: float | None = None  # the same
    success: bool | None = None  # of the last step
    trace: Trace | None = None  # by which it may be cut off early

    @property
    def agents(self) -> int:
        """That act at once, each a row of its own; 0: one row is all."""
        return self.environment.agents

    @property
    def length(self) -> int:
        """Steps since the environment was reset."""
        return len(self.actions)

    def anew(self) -> None:
        """The next episode begins, without a reset."""
        self.earned, self.cost, self.success = 0.0, None, None

    def state_dict(self) -> dict[str, Any]:
        """Environments do not travel: their seed and the actions so far bring one to the same state."""
        return {
            "task": self.task,
            "seed": self.seed,
            "actions": [action_A.clone() for action_A in self.actions],  # each is a view of a whole step's
            "observation": self.observation.tolist(),
            "noise": self.noise_A,
            "trace": None if self.trace is None else asdict(self.trace),
        }


def one_step(play: Play, action_A: np.ndarray) -> Moment:
    """A step of an environment that cannot hang, in this thread."""
    try:
        return play.environment.step(action_A)
    except Exception as error:
        return Moment(
            error=f"environment step for task {play.task.id}, turn {len(play.actions)} raised {raised(error)}"
        )


def several_steps(
    plays: Sequence[Play], action_BA: Sequence[np.ndarray] | np.ndarray, answers: list[Moment], call: Call
) -> None:
    """A step in each of these environments, in a thread; its answers so far are in ``answers``."""
    environments = [play.environment for play in plays]
    if not call.go_on(plays[0].task.id, len(plays[0].actions)):
        return
    for place, moment in enumerate(environments[0].step_several(environments, list(action_BA)), 1):
        answers.append(moment)
        if place < len(plays) and not call.go_on(plays[place].task.id, len(plays[place].actions)):
            return  # it came back too late, and the others are stepped by another thread


def broke(call: Call) -> str:
    """What went wrong in a call of an environment, '' for nothing. Any exception of an environment is data."""
    try:
        call.result()
    except Hung:  # that ends the run
        raise
    except Late as error:
        return str(error)
    except BaseException as error:
        if error is not call.error:  # a signal, and not the environment's
            raise
        return f"{call.name} {error}" if isinstance(error, Elsewhere) else f"{call.name} raised {raised(error)}"
    return ""


class Environments:
    """The environments of an engine. Those at rest are kept for later episodes of their source.

    ``apart``: each is in a process of its own, and at most ``most`` of these rest.
    """

    def __init__(self, *, apart: bool, most: int) -> None:
        self.apart, self._most = apart, most
        self._idle: list[AbstractActed] = []  # the longest first
        self._processes: list[AbstractActed] = []  # at rest and in use

    def taken(self, sources: Sequence[str]) -> list[AbstractActed]:
        """One for each of these, to be reset. Processes that are wanted all start before the first is waited for."""
        found: list[AbstractActed | Apart | None] = []
        for source in sources:
            match = next((one for one in self._idle if one.source == source), None)
            if match is not None:
                self._idle.remove(match)
            found.append(match or (Apart(source) if self.apart else None))
        return [
            one if isinstance(one, AbstractActed) else self._opened(source, one)
            for source, one in zip(sources, found, strict=True)
        ]

    def _opened(self, source: str, apart: Apart | None) -> AbstractActed:
        environment = Registered(source=source).open() if apart is None else Environment(source, apart=apart)
        self._processes += [environment] if self.apart else []
        return environment

    def rest(self, environment: AbstractActed) -> None:
        """It is to be reset for a later episode."""
        self._idle.append(environment)
        if self.apart and len(self._idle) > self._most:
            self._end(self._idle.pop(0))

    def lose(self, environment: AbstractActed) -> None:
        """It broke, or did not answer. Its process is ended, and with it the thread that waits for it."""
        if self.apart:
            self._processes.remove(environment)
            environment.kill()

    def close(self) -> None:
        """All processes. An environment in this one ends with it."""
        for environment in tuple(self._processes):
            self._end(environment)

    def _end(self, environment: AbstractActed) -> None:
        self._processes.remove(environment)
        environment.close()
