"""Exact match of one of several right answers."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.records import Group, Task
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class OneOf(AbstractReward):
    """1 if the whole completion (stripped) is one of the texts in the task's column ``column``, else 0."""

    column: str = "answers"
    name: str = "right"

    def __call__(self, group: Group) -> list[float | None]:
        right = set(group.task.columns[self.column])
        return [float(rollout.text.strip() in right) for rollout in group.rollouts]

    def accepts(self, task: Task) -> None:
        given = task.columns.get(self.column)
        if not isinstance(given, list | tuple) or not given or not all(isinstance(one, str) for one in given):
            raise ValueError(
                f"OneOf reads a list of right texts from the column {self.column}, and that of task {task.id} is {given!r:.60}: "
                "give rewards.0.column=NAME, or ExactAnswer() for tasks with one answer"
            )
