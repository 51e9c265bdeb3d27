"""The same number of rollouts for every task, unless the task sets its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gimbal.dataflow.base import AbstractBudget, AbstractBudgetSpec, Plan
from gimbal.records import Task

COLUMN = "num_generations"


@dataclass(frozen=True, kw_only=True)
class Fixed(AbstractBudgetSpec):
    """``num_generations`` rollouts of at most ``max_length`` decisions each, or as many as the task's column ``num_generations``
    says.
    """

    def start(self, rollouts: int, max_length: int) -> FixedBudget:
        return FixedBudget(rollouts, max_length)


class FixedBudget(AbstractBudget):
    def __init__(self, rollouts: int, max_length: int) -> None:
        if rollouts < 1 or max_length < 1:
            raise ValueError(f"rollouts is {rollouts}, max_length {max_length}; both must be at least 1")
        self.rollouts, self.max_length = rollouts, max_length

    def plan(self, tasks: Sequence[Task]) -> list[Plan]:
        return [
            Plan(rollouts=int(task.columns.get(COLUMN, self.rollouts)), max_length=self.max_length) for task in tasks
        ]
