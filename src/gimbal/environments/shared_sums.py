"""Chain sums for two: one adds the first two terms, and another goes on from there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gimbal.environments.base import AbstractTasks
from gimbal.environments.demonstrations import training_tasks
from gimbal.environments.reasoning import ReasoningGym
from gimbal.records import Task

HANDED = "{before}{plan}{after}"  # the prompt of who goes on


@dataclass(frozen=True, kw_only=True)
class SharedSums(AbstractTasks):
    """Chain sums that can be handed over after their first two terms.

    ``columns["before"]`` is the question up to its sum and ``columns["after"]`` all behind the first two terms, so that with a number
    between them they ask for the rest. Prompt and answer are those of ``tasks``.

    Made for workflows.PlanAndExecute.
    """

    tasks: ReasoningGym = training_tasks()

    def __post_init__(self) -> None:
        if self.tasks.name != "chain_sum":
            raise ValueError(f"SharedSums hands over chain_sum, and its tasks are {self.tasks.name}")

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index]
        expression = task.columns["metadata"]["expression"]
        before, _, after = task.prompt.partition(expression)
        rest = " ".join(expression.split()[3:])
        return replace(task, columns={**task.columns, "before": before, "after": f" {rest}{after}" if rest else after})
