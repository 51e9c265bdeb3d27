"""Every task in two wordings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gimbal.environments.base import AbstractTasks
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Reworded(AbstractTasks):
    """Task 2i is task i of ``tasks`` unchanged; task 2i + 1 asks it with ``template``, filled from the task's metadata.

    Both carry i in the column ``family``. Take them in order (Epochs(shuffle=False)) to have both in one batch.
    """

    tasks: AbstractTasks
    template: str = "{expression} =\n"

    def __len__(self) -> int:
        return 2 * len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index // 2]
        task = replace(task, columns={**task.columns, "family": index // 2})
        if index % 2 == 0:
            return task
        metadata = task.columns.get("metadata", {})
        try:
            prompt = self.template.format(**metadata)
        except KeyError as error:
            raise ValueError(
                f"Reworded.template reads {error}, and the metadata of task {task.id} holds {sorted(metadata)}"
            ) from error
        return replace(task, id=f"{task.id}:reworded", prompt=prompt)
