"""The verbs of the rollout half: which task next, how many rollouts, what may train, what is kept.

Everything stateful here has ``state_dict`` (plain numbers, strings, lists, tensors and records) and ``load_state_dict``; a run
that is killed and resumed continues bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gimbal.composition import AbstractPart
from gimbal.environments.base import AbstractTasks
from gimbal.records import Drop, Group, Task


class AbstractCurriculum(ABC):
    """Which task next: the live half of an ``AbstractCurriculumSpec``."""

    @abstractmethod
    def next(self) -> Task: ...

    def observe(self, group: Group) -> None:
        """Called with every finished, scored group, trained on or not."""
        return None

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class AbstractCurriculumSpec(AbstractPart, ABC):
    """A curriculum as a recipe names it: a frozen dataclass."""

    @abstractmethod
    def start(self, tasks: AbstractTasks, seed: int) -> AbstractCurriculum: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is spent on one task."""

    rollouts: int
    max_length: int


class AbstractBudget(ABC):
    """How many rollouts of a task, and how long: the live half of an ``AbstractBudgetSpec``."""

    @abstractmethod
    def plan(self, task: Task) -> Plan: ...

    def observe(self, group: Group) -> None:
        """Called with every finished, scored group, trained on or not."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None


class AbstractBudgetSpec(AbstractPart, ABC):
    """A budget as a recipe names it: a frozen dataclass."""

    @abstractmethod
    def start(self, rollouts: int, max_length: int) -> AbstractBudget:
        """``rollouts`` and ``max_length`` are the run's num_generations and sampling.max_length: what one task gets on the whole."""


class AbstractFilter(AbstractPart, ABC):
    """What may train: the group (perhaps with fewer rollouts), or a Drop with its reason. A frozen dataclass."""

    @abstractmethod
    def __call__(self, group: Group) -> Group | Drop: ...
