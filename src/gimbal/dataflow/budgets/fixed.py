"""The same for every task."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.dataflow.base import AbstractBudget, Plan
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Fixed(AbstractBudget):
    """``rollouts`` of at most ``max_length`` decisions each, whatever the task."""

    rollouts: int = 8
    max_length: int = 64

    def __post_init__(self) -> None:
        if self.rollouts < 1 or self.max_length < 1:
            raise ValueError(
                f"rollouts is {self.rollouts}, max_length {self.max_length}; both are counts of at least 1"
            )

    def plan(self, task: Task) -> Plan:
        return Plan(rollouts=self.rollouts, max_length=self.max_length)
