"""Every task once per epoch, shuffled or in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumSpec
from gimbal.environments.base import AbstractTasks
from gimbal.ops import philox
from gimbal.records import VISIT, Task

MOST_TASKS = 100_000_000  # whose order takes 0.8 GB


@dataclass(frozen=True, kw_only=True)
class Epochs(AbstractCurriculumSpec):
    """Endless epochs over the tasks. ``shuffle``: each is a permutation of all tasks that depends only on (seed, epoch); a stream
    shuffles itself and is read in order.
    """

    shuffle: bool = True

    def start(self, tasks: AbstractTasks, seed: int) -> EpochsCurriculum:
        return EpochsCurriculum(self, tasks, seed)


class EpochsCurriculum(AbstractCurriculum):
    """The live half of ``Epochs``."""

    def __init__(self, spec: Epochs, tasks: AbstractTasks, seed: int) -> None:
        if len(tasks) == 0:
            raise ValueError("there are no tasks; a curriculum needs at least one")
        if len(tasks) > MOST_TASKS:
            raise ValueError(
                f"there are {len(tasks):,} tasks, and the order of at most {MOST_TASKS:,} is held: lower tasks.size"
            )
        self.spec, self.tasks, self.seed = spec, tasks, seed
        self._go_to(0, 0)

    def next(self) -> Task:
        if self.position == len(self.tasks):
            self._go_to(self.epoch + 1, 0)
        task = self.tasks[int(self._order[self.position])]
        self.position += 1
        return replace(task, columns={**task.columns, VISIT: self.epoch}) if self.epoch else task

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["position"] > len(self.tasks):
            raise ValueError(
                f"there are {len(self.tasks):,} tasks now, and the run has taken {state['position']:,} of this epoch: some were "
                "removed since the checkpoint. Restore the data, or start a new run with these: gimbal train --from RUN"
            )
        self._go_to(state["epoch"], state["position"])

    def _go_to(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        size, shuffle = len(self.tasks), self.spec.shuffle and not self.tasks.ordered
        self._order = philox(self.seed, "epoch", epoch).permutation(size) if shuffle else np.arange(size)
