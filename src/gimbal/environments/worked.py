"""Chain sums that bring their own solution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from gimbal.environments.base import AbstractTasks
from gimbal.environments.demonstrations import solve_chain_sum, training_tasks
from gimbal.environments.reasoning import ReasoningGym
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Worked(AbstractTasks):
    """Chain sums with a correct solution written out: answers for SFT.

    ``columns["completion"]`` is a correct solution, ``columns["solution"]`` its reasoning only, with every step written out.

    For methods that learn from references: as hints, or by imitation.
    """

    tasks: ReasoningGym = training_tasks()

    def __post_init__(self) -> None:
        if self.tasks.name != "chain_sum":
            raise ValueError(f"Worked solves chain_sum, and its tasks are {self.tasks.name}; other data bring a column")

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index]
        completion = solve_chain_sum(task.columns["metadata"]["expression"], "sound", Random(0))
        working = completion.removeprefix("<think>").partition("</think>")[0]
        return replace(task, columns={**task.columns, "completion": completion, "solution": working})
