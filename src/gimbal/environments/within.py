"""The part of a task set that lies between two bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gimbal.environments.base import AbstractTasks
from gimbal.ops import philox
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Within(AbstractTasks):
    """The tasks whose number in ``column`` is above ``above`` and at most ``upto``, in their order.

    ``column`` may be dotted ("metadata.num_terms"). ``shuffled`` (a seed) first deals the numbers out again: a random split of the same
    sizes, which is what a split by difficulty must beat. All tasks are looked at once, at first use.

    - -inf and inf: all tasks.
    - two of them that share a bound, above and upto it, part the set; so they do with the same ``shuffled``.
    """

    tasks: AbstractTasks
    column: str = "difficulty"
    above: float = -math.inf
    upto: float = math.inf
    shuffled: int | None = None

    def __post_init__(self) -> None:
        if self.above >= self.upto:
            raise ValueError(
                f"Within lies above {self.above} and up to {self.upto}, which selects nothing: above must be less than upto"
            )

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[self._places[index]]

    @cached_property
    def _places(self) -> tuple[int, ...]:
        numbers = [_number(self.tasks[place], self.column) for place in range(len(self.tasks))]
        if self.shuffled is not None:
            order = philox(self.shuffled, "within").permutation(len(numbers))
            numbers = [numbers[place] for place in order]
        places = tuple(place for place, number in enumerate(numbers) if self.above < number <= self.upto)
        if not places:
            raise ValueError(
                f"no task has a {self.column} above {self.above} and up to {self.upto}; they go from {min(numbers, default=0)} "
                f"to {max(numbers, default=0)}"
            )
        return places


def _number(task: Task, column: str) -> float:
    value: Any = task.columns
    for name in column.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise ValueError(f"task {task.id} has no column {column!r}; it has {', '.join(sorted(task.columns))}")
        value = value[name]
    return float(value)
