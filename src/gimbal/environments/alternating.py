"""Tasks that change under the policy's feet."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.environments.base import AbstractTasks
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Alternating(AbstractTasks):
    """Two sets of tasks that take turns.

    ``period`` tasks of the first set, then as many of the next, in turns: a non-stationary task distribution.

    Take them in order (Epochs(shuffle=False)). A set is never begun again before it is used up. Ends with the whole rounds of the
    shortest set.
    """

    sets: tuple[AbstractTasks, ...]
    period: int = 64

    def __post_init__(self) -> None:
        if not self.sets or self.period < 1:
            raise ValueError("Alternating takes one set or more, and at least 1 task of it at a time")
        if min(len(tasks) for tasks in self.sets) < self.period:
            raise ValueError(f"Alternating takes {self.period} tasks at a time, and a set has fewer: lower period")

    def __len__(self) -> int:
        return min(len(tasks) for tasks in self.sets) // self.period * self.period * len(self.sets)

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < len(self):
            raise IndexError(f"task {index} of {len(self)}")
        turn, place = divmod(index, self.period)
        lap, number = divmod(turn, len(self.sets))
        return self.sets[number][lap * self.period + place]
