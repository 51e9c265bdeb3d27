"""The verbs of the rollout half: which task next, how many rollouts, what may train, what is kept.

Everything stateful here has ``state_dict`` (plain numbers, strings, lists, tensors and records) and ``load_state_dict``; a run
that is killed and resumed continues bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gimbal.composition import AbstractPart
from gimbal.environments.base import AbstractTasks
from gimbal.records import Drop, Group, Task


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The run's position at the start of a learner step, for schedules by steps or tokens, never by the clock."""

    version: int  # learner steps so far
    drawn: int  # decisions generated so far, of the whole run


class AbstractObserver(ABC):
    """Common base of curricula and budgets: they observe groups as they finish.

    Groups are observed in the order of their verdicts, which is random with several processes: a state that does not depend on the
    order within a step is the same in any order.
    """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def observe(self, group: Group) -> None:
        """Called once with every finished, scored group, trained on or not, when no more of its rollouts will be sampled."""
        return None

    def step(self, progress: Progress) -> None:
        """Called once per learner step, before any of its tasks are dispatched."""
        return None

    def metrics(self) -> Mapping[str, float]:
        """Figures for metrics.jsonl, each under the component's name: Name/figure."""
        return {}


class AbstractCurriculum(AbstractObserver):
    """Which task next: the live half of an ``AbstractCurriculumSpec``."""

    @abstractmethod
    def next(self) -> Task: ...


class AbstractCurriculumAround(AbstractCurriculum):
    """A curriculum around another: whatever it does not define comes from the inner one."""

    order: AbstractCurriculum

    def next(self) -> Task:
        return self.order.next()

    def observe(self, group: Group) -> None:
        self.order.observe(group)

    def step(self, progress: Progress) -> None:
        self.order.step(progress)

    def metrics(self) -> Mapping[str, float]:
        return self.order.metrics()

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.order.load_state_dict(state["order"])


class AbstractCurriculumSpec(AbstractPart, ABC):
    """A curriculum in a recipe: a frozen dataclass."""

    @abstractmethod
    def start(self, tasks: AbstractTasks, seed: int) -> AbstractCurriculum: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The initial spending on one task."""

    rollouts: int
    max_length: int


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A scored group that may get more rollouts. ``asked``: rollouts requested so far, including cancelled ones."""

    group: Group
    asked: int


class AbstractBudget(AbstractObserver):
    """How many rollouts of a task, and how long: the live half of an ``AbstractBudgetSpec``.

    Tasks dispatched together are a round: all tasks of a step, or the one that replaces a dropped group.
    """

    rounds: ClassVar[bool] = False  # whether ``more`` is about whole rounds

    @abstractmethod
    def plan(self, tasks: Sequence[Task]) -> Sequence[Plan]:
        """The initial rollouts of each task of a round."""

    def more(self, begun: Sequence[Begun]) -> Sequence[int]:
        """How many further rollouts of each; called again once these are scored, until it returns 0 for all of them.

        It is called for a single group as soon as that is scored or, with ``rounds``, for all surviving groups of a round once the
        slowest is scored. If it can return more than 0, its spec must have the effect GROWS.
        """
        return [0] * len(begun)

    def asks(self, group: Group) -> Task:
        """What the further rollouts of this scored group are asked: its task, or that task with another prompt."""
        return group.task

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None


class AbstractBudgetSpec(AbstractPart, ABC):
    """A budget as a recipe names it: a frozen dataclass."""

    def accepts(self, task: Task) -> None:
        """Raise a ValueError, before the first step, if what the task says of its rollouts cannot be read."""
        return None

    @abstractmethod
    def start(self, rollouts: int, max_length: int) -> AbstractBudget:
        """``rollouts`` and ``max_length`` are the run's num_generations and sampling.max_length: what one task gets on average."""


class AbstractFilter(AbstractPart, ABC):
    """What may train: the group (perhaps with fewer rollouts), or a Drop with its reason. A frozen dataclass."""

    @abstractmethod
    def __call__(self, group: Group) -> Group | Drop: ...
