"""Tasks held out for evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.environments.base import AbstractTasks
from gimbal.environments.mixture import Mixed
from gimbal.ops import philox
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Split(AbstractTasks):
    """One side of a task set, divided by ``seed``: the held-out tasks, a share (``held_out`` below 1) or a number of them, or the rest.

    Tasks that ask the same are on the same side. Questions are held out in the order in which ``seed`` draws the tasks; one with more
    tasks than are still wanted is trained on, and if all have more, the one with the fewest is held out.

    - the two sides, of one ``seed`` and ``held_out``: every task is on one of them, no question on both.
    - no question asked twice: the tasks that are drawn first are held out.
    """

    tasks: AbstractTasks
    side: Literal["train", "held_out"]
    held_out: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.held_out > 0 or (self.held_out >= 1 and self.held_out != int(self.held_out)):
            raise ValueError(
                f"held_out is {self.held_out:g}; it must be a share of the tasks, such as 0.1, or a whole number of them, such as 200"
            )
        if self.tasks.ordered:
            raise ValueError("a stream cannot be split: name another split or file, held_out=test or held_out=FILE")

    @property
    def sources(self) -> tuple[str, ...]:
        return self.tasks.sources

    def questions(self) -> np.ndarray:
        return self._asked[self._places]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[int(self._places[index])]

    @property
    def _places(self) -> np.ndarray:
        return self._sides[self.side == "held_out"]

    @cached_property
    def _asked(self) -> np.ndarray:
        return self.tasks.questions()  # reads every row

    @cached_property
    def _sides(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of what is trained on, and of what is held out."""
        size = len(self.tasks)
        count = int(self.held_out) if self.held_out >= 1 else max(1, round(self.held_out * size))
        order = philox(self.seed, "held out").permutation(size)
        _, first_Q, question_N, size_Q = np.unique(
            self._asked[order], return_index=True, return_inverse=True, return_counts=True
        )
        if count >= size or len(first_Q) == 1:
            way = "lower it" if count >= size else "all ask the same, so hold out a file of other tasks, held_out=FILE"
            raise ValueError(f"held_out={self.held_out:g} of {size:,} tasks leaves none to train on; {way}")
        held_Q = np.zeros(len(first_Q), bool)
        drawn = first_Q.argsort()
        for question in drawn:
            if not count:
                break
            if size_Q[question] <= count:
                held_Q[question], count = True, count - size_Q[question]
        if not held_Q.any():
            held_Q[min(drawn, key=size_Q.__getitem__)] = True
        held_N = held_Q[question_N]
        return np.sort(order[~held_N]), np.sort(order[held_N])

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        for other in whole.all(Split):
            alike = other.tasks == self.tasks and other.side != self.side
            if alike and (other.seed, other.held_out) != (self.seed, self.held_out) and self.side == "train":
                yield Refusal(
                    f"tasks and held_out are split in different ways (held_out {self.held_out:g} and {other.held_out:g}, seed "
                    f"{self.seed} and {other.seed}), so tasks would be on both sides: give both the same"
                )


def parted(tasks: AbstractTasks, held_out: float, seed: int = 0) -> tuple[AbstractTasks, AbstractTasks]:
    """(What is trained on, what is held out). Of a mixture each set is parted for itself."""
    if isinstance(tasks, Split):  # of an earlier run: anew
        tasks = tasks.tasks
    if not isinstance(tasks, Mixed):
        return (
            Split(tasks=tasks, side="train", held_out=held_out, seed=seed),
            Split(tasks=tasks, side="held_out", held_out=held_out, seed=seed),
        )
    amounts = [held_out] * len(tasks.sets)
    if held_out >= 1:  # so many in all, by weight
        weights = tasks.weights or tuple(float(len(each)) for each in tasks.sets)
        amounts = [max(1.0, float(round(held_out * weight / sum(weights)))) for weight in weights]
    sides = [parted(each, amount, seed) for each, amount in zip(tasks.sets, amounts, strict=True)]
    train, held = (tuple(side) for side in zip(*sides, strict=True))
    return (
        Mixed(sets=train, weights=tasks.weights, names=tasks.names, seed=tasks.seed),
        Mixed(sets=held, names=tasks.names),
    )
