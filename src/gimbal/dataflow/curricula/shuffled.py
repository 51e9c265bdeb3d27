"""Every task once an epoch, in a fresh order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gimbal.dataflow.base import AbstractCurriculum
from gimbal.environments.base import AbstractTasks
from gimbal.ops import philox
from gimbal.records import Task


class Shuffled(AbstractCurriculum):
    """Endless epochs; each is a permutation of all tasks that depends on (seed, epoch) alone."""

    def __init__(self, tasks: AbstractTasks, seed: int) -> None:
        if len(tasks) == 0:
            raise ValueError("there are no tasks; a curriculum needs at least one")
        self.tasks, self.seed = tasks, seed
        self._go_to(0, 0)

    def next(self) -> Task:
        if self.position == len(self.tasks):
            self._go_to(self.epoch + 1, 0)
        task = self.tasks[int(self._order[self.position])]
        self.position += 1
        return task

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._go_to(state["epoch"], state["position"])

    def _go_to(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        self._order = philox(self.seed, "epoch", epoch).permutation(len(self.tasks))
