"""Several environments of one kind, acted in by one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gimbal.config.own import raised
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Failure, Moment
from gimbal.records import Fault, Lateness, Task


@dataclass(frozen=True, kw_only=True)
class Several(AbstractEnvironmentSpec):
    """``count`` of these environments, all begun with the same task: an action is one for each, None for those to be left alone.

    It is answered with the moments of all. One that raises has an error in its own and stays broken; the others go on. A call costs a
    thread, which for an environment that answers in microseconds is nearly all it costs.
    """

    of: AbstractEnvironmentSpec
    count: int = 1

    @property
    def fault(self) -> Fault:
        return self.of.fault

    def open(self) -> SideBySide:
        return SideBySide(self.of.fault, [self.of.open() for _ in range(self.count)])


class SideBySide(AbstractEnvironment):
    def __init__(self, fault: Fault, environments: Sequence[AbstractEnvironment]) -> None:
        self.fault, self.environments = fault, list(environments)
        self.newest = [Moment() for _ in environments]

    def reset(self, task: Task, seed: int) -> tuple[Moment, ...]:
        self.newest = [Moment() for _ in self.environments]
        for at, one in enumerate(self.environments):
            self._do(at, lambda one=one: Moment(observation=one.reset(task, seed)), late="setup")
        return tuple(self.newest)

    def step(self, action: Sequence[Any]) -> Moment:
        for at, (one, what) in enumerate(zip(self.environments, action, strict=True)):
            if what is not None and not self.newest[at].ended:
                self._do(at, lambda one=one, what=what: one.step(what))
        return Moment(observation=tuple(self.newest), terminated=all(one.ended for one in self.newest))

    def _do(self, at: int, call: Any, late: Lateness = True) -> None:
        try:
            self.newest[at] = call()
        except Exception as error:  # whatever an environment raises is its own, and the others' no concern
            told = error if isinstance(error, Failure) else Failure("", self.fault)
            said = f"environment {at} raised {raised(error)}"
            self.newest[at] = Moment(error=said, fault=told.fault, late=told.late and late)

    def fork(self) -> SideBySide:
        other = SideBySide(self.fault, [one.fork() for one in self.environments])
        other.newest = [*self.newest]
        return other

    def close(self) -> None:
        for one in self.environments:
            one.close()
