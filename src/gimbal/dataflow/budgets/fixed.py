"""The same for every task that does not say otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.dataflow.base import AbstractBudget, Plan
from gimbal.records import Task

COLUMN = "num_generations"


@dataclass(frozen=True, kw_only=True)
class Fixed(AbstractBudget):
    """``rollouts`` of at most ``max_length`` decisions each, or as many as the task asks for in its column ``num_generations``."""

    rollouts: int = 8
    max_length: int = 64

    def __post_init__(self) -> None:
        if self.rollouts < 1 or self.max_length < 1:
            raise ValueError(
                f"rollouts is {self.rollouts}, max_length {self.max_length}; both are counts of at least 1"
            )

    def plan(self, task: Task) -> Plan:
        return Plan(rollouts=int(task.columns.get(COLUMN, self.rollouts)), max_length=self.max_length)
