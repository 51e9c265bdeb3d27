"""The interface of rewards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gimbal.composition import AbstractPart
from gimbal.records import Group, Rollout, Task


@dataclass(frozen=True, kw_only=True)
class AbstractReward(AbstractPart, ABC):
    """Group -> one score per rollout; None where it does not apply. ``name`` is its key in metrics and in ``Rollout.scores``.

    A reward is a frozen dataclass (it is part of the saved recipe) with a ``weight``. ``open`` is called once before the first
    score and ``close`` at the end; a reward that starts a process does it there.
    """

    # Whether equal texts may get different scores, depending on their position in the group.
    by_place: ClassVar[bool] = False
    # Whether a rollout's score depends on the others of its group, so that one alone says nothing: an evaluation leaves it out.
    by_group: ClassVar[bool] = False
    # Whether it is a method, or part of one, and not only a scorer of answers: where reward= replaces it, that is told.
    is_method: ClassVar[bool] = False

    name: str
    weight: float = 1.0

    @property
    def decides(self) -> bool:
        """Whether a score of 1 solves the task, where this is the run's first reward: not for a distance, a rate or a logit."""
        return not self.by_group

    @abstractmethod
    def __call__(self, group: Group) -> list[float | None]: ...

    def accepts(self, task: Task) -> None:
        """Raises ValueError if it cannot score such a task, which would end the run later; called before the first step."""
        return None

    def answer(self, text: str) -> str | None:
        """The answer in this text, for majority votes: texts with the same answer agree."""
        return None

    def figures(self, rollouts: Sequence[Rollout]) -> Mapping[str, float]:
        """Figures over many rollouts that are not means of scores, such as how much of the data they cover; by name."""
        return {}

    def follow_ups(self, group: Group) -> Sequence[Task]:
        """Questions for the policy itself, to answer before the group is scored; the answers are in ``group.replies[self.name]``.

        They are sampled like the rollouts, and never trained on. Repeated calls must return the same.
        """
        return ()

    def open(self) -> AbstractReward:
        return self

    def close(self) -> None:
        return None
