"""Chain sums with evidence to argue by, and a decision to beat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from gimbal.environments.base import AbstractTasks
from gimbal.environments.demonstrations import solve_chain_sum, training_tasks
from gimbal.environments.reasoning import ReasoningGym
from gimbal.environments.worked import Worked
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Contested(AbstractTasks):
    """Chain sums with another's answer and the correct steps, to judge that answer by.

    ``columns["evidence"]`` holds the correct steps of the sum, ``columns["baseline"]`` another's answer to it.

    The baseline is right and ``unworked``, or ``unsound`` (see environments.demonstrations). Made for rewards.Debated.
    """

    tasks: ReasoningGym = training_tasks()
    style: str = "unworked"

    def __post_init__(self) -> None:
        if self.style not in ("sound", "unsound", "unworked"):
            raise ValueError(f"Contested.style is {self.style!r}; choose sound, unsound or unworked")

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        task = Worked(tasks=self.tasks)[index]
        expression = task.columns["metadata"]["expression"]
        columns = {
            **task.columns,
            "evidence": task.columns["solution"].split(),
            "baseline": solve_chain_sum(expression, self.style, Random(f"contested:{index}")),
        }
        return replace(task, columns=columns)
