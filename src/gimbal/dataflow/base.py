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
    """Where the run is as a learner step begins: what it is told that goes by steps or by tokens, never by the clock."""

    version: int  # learner steps so far
    drawn: int  # decisions generated so far, of the whole run


class AbstractObserver(ABC):
    """What a curriculum and a budget have in common: they watch groups as they finish.

    Groups are observed in the order of their verdicts, which on several processes is chance's: a state that does not depend on the
    order within a step is the same for all of them.
    """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def observe(self, group: Group) -> None:
        """Called with every finished, scored group, trained on or not, once: when no more rollouts of it will be drawn."""
        return None

    def step(self, progress: Progress) -> None:
        """Called once for each learner step, before anything is given out for it."""
        return None

    def metrics(self) -> Mapping[str, float]:
        """Figures for metrics.jsonl, each under the part's own name: Name/figure."""
        return {}


class AbstractCurriculum(AbstractObserver):
    """Which task next: the live half of an ``AbstractCurriculumSpec``."""

    @abstractmethod
    def next(self) -> Task: ...


class AbstractCurriculumAround(AbstractCurriculum):
    """A curriculum around another: what a concrete one does not say of itself is the inner one's."""

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
    """A curriculum as a recipe names it: a frozen dataclass."""

    @abstractmethod
    def start(self, tasks: AbstractTasks, seed: int) -> AbstractCurriculum: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is spent on one task, at first."""

    rollouts: int
    max_length: int


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A scored group of which more rollouts may be drawn. ``asked``: rollouts asked for so far, those given up among them."""

    group: Group
    asked: int


class AbstractBudget(AbstractObserver):
    """How many rollouts of a task, and how long: the live half of an ``AbstractBudgetSpec``.

    Tasks that are given out together are a round: all of a step's, or the one that replaces a group that was dropped.
    """

    rounds: ClassVar[bool] = False  # whether ``more`` is about whole rounds

    @abstractmethod
    def plan(self, tasks: Sequence[Task]) -> Sequence[Plan]:
        """What is drawn at first of each task of a round."""

    def more(self, begun: Sequence[Begun]) -> Sequence[int]:
        """How many further rollouts of each; asked again once these are scored, until it says 0 for all of them.

        It is asked about a single group as soon as that is scored, or where it goes by ``rounds`` about all groups of a round that were
        not lost, once the slowest is scored. One that says more than 0 lets its spec have the effect GROWS.
        """
        return [0] * len(begun)

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
