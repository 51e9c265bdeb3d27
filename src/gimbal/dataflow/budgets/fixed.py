"""The same number of rollouts for every task, unless the task sets its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gimbal.config.own import told
from gimbal.dataflow.base import AbstractBudget, AbstractBudgetSpec, Plan
from gimbal.records import Task

COLUMN = "num_generations"


@dataclass(frozen=True, kw_only=True)
class Fixed(AbstractBudgetSpec):
    """``num_generations`` rollouts of at most ``max_length`` decisions each, or as many as the task's column ``num_generations``
    says.
    """

    def accepts(self, task: Task) -> None:
        wanted(task, 1)

    def start(self, rollouts: int, max_length: int) -> FixedBudget:
        return FixedBudget(rollouts, max_length)


class FixedBudget(AbstractBudget):
    def __init__(self, rollouts: int, max_length: int) -> None:
        if rollouts < 1 or max_length < 1:
            raise ValueError(f"rollouts is {rollouts}, max_length {max_length}; both must be at least 1")
        self.rollouts, self.max_length = rollouts, max_length

    def plan(self, tasks: Sequence[Task]) -> list[Plan]:
        return [Plan(rollouts=wanted(task, self.rollouts), max_length=self.max_length) for task in tasks]


def wanted(task: Task, rollouts: int) -> int:
    """How many its column says, or else these."""
    if (value := task.columns.get(COLUMN)) is None:
        return rollouts
    try:
        if int(value) == float(value) >= 1 and not isinstance(value, bool):
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(
        f"task {task.id}: its column {COLUMN} is {told(value)}; it must be a whole number of rollouts, 1 or above, or be left out or "
        "empty for the run's num_generations"
    )
