"""Scores that came with the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gimbal.records import Group, Task
from gimbal.rewards.base import AbstractReward


def chosen(task: Task, column: str, sample: int) -> Any:
    """The value of a task's column for this sample: its entry in a list, or the value itself."""
    if column not in task.columns:
        raise ValueError(
            f"task {task.id} has no column {column!r}; columns: {', '.join(task.columns) or 'none'}. Data for SFT have "
            "prompt and completion, for DPO prompt, chosen and rejected (docs/data.md)"
        )
    value = task.columns[column]
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    if sample >= len(value):
        raise ValueError(
            f"task {task.id} has {len(value)} entries in {column!r} and sample {sample} is asked for: set num_generations to "
            f"{len(value)} or below"
        )
    return value[sample]


@dataclass(frozen=True, kw_only=True)
class Recorded(AbstractReward):
    """The recorded score of each completion of workflows.Demonstrated, from ``task.columns["score"]``: one number, or a list with
    one per sample.
    """

    column: str = "score"
    name: str = "recorded"

    def accepts(self, task: Task) -> None:
        chosen(task, self.column, 0)

    def __call__(self, group: Group) -> list[float | None]:
        return [float(chosen(group.task, self.column, rollout.sample)) for rollout in group.rollouts]
