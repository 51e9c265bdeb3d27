"""Several task sets, each sampled by its weight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gimbal.environments.base import AbstractTasks
from gimbal.environments.dataset import Dataset
from gimbal.environments.files import names_of
from gimbal.ops import philox
from gimbal.records import Task

MOST_DRAWS = 50_000_000  # of an epoch: 0.3 GB for their order


@dataclass(frozen=True, kw_only=True)
class Mixed(AbstractTasks):
    """A mixture of several task sets, sampled in proportion to their weights. Without weights every task once.

    An epoch lasts until every task of every set has been used at least once at these shares; tasks of the other sets repeat. ``seed``
    decides the order of sets. A task's id begins with the name of its set, which is also its source if it names none.

    - equal sizes and weights: every task once.
    - a weight of 0 is refused: leave the set out.
    """

    sets: tuple[AbstractTasks, ...]
    weights: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        count = len(self.sets)
        if not count or len(self.weights) not in (0, count) or len(self.names) not in (0, count):
            raise ValueError(
                f"Mixed has {count} sets, {len(self.weights)} weights and {len(self.names)} names; give one of each per set"
            )
        if not all(0 < weight < float("inf") for weight in self.weights):
            raise ValueError(f"the weights of a Mixed are above 0, got {self.weights}; leave out a set without weight")
        if not self.names:
            paths = [tasks.names[0] if isinstance(tasks, Dataset) else type(tasks).__name__ for tasks in self.sets]
            object.__setattr__(self, "names", tuple(names_of(paths)))
        if len(set(self.names)) < count:
            raise ValueError(f"the names of a Mixed are {', '.join(self.names)}; each set has one of its own")

    @property
    def ordered(self) -> bool:
        return any(tasks.ordered for tasks in self.sets)

    @property
    def sources(self) -> tuple[str, ...]:
        own = [tasks.sources or (name,) for tasks, name in zip(self.sets, self.names, strict=True)]
        return tuple(dict.fromkeys(source for several in own for source in several))

    def __len__(self) -> int:
        return len(self._order[0])

    def __getitem__(self, index: int) -> Task:
        which, draw = (int(column[index]) for column in self._order)
        lap, place = divmod(draw, len(self.sets[which]))
        task, name = self.sets[which][place], self.names[which]
        # Random numbers hang on the id: asked again under the same one in the same step, a task would get the same answers.
        again = f"~{lap}" if lap else ""
        return replace(task, id=f"{name}/{task.id}{again}", source=task.source or name)

    def questions(self) -> np.ndarray:
        asked, (which, draw) = [tasks.questions() for tasks in self.sets], self._order
        return np.array([asked[w][d % len(asked[w])] for w, d in zip(which.tolist(), draw.tolist(), strict=True)])

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """Of every draw, from which set it is, and how many of that set came before."""
        sizes = np.array([len(tasks) for tasks in self.sets])
        counts = sizes
        if self.weights:
            share = np.array(self.weights) / sum(self.weights)
            longest = float((sizes / share).max())
            if longest > MOST_DRAWS:
                rare = int((sizes / share).argmax())
                raise ValueError(
                    f"an epoch in which all {sizes[rare]:,} tasks of {self.names[rare]} have {share[rare]:.2g} of the draws takes "
                    f"{longest:,.0f} draws, and {MOST_DRAWS:,} is the most: raise its weight"
                )
            counts = np.maximum(1, np.rint(share * longest).astype(np.int64))
        which = np.repeat(np.arange(len(sizes), dtype=np.int16), counts)
        if self.weights:
            which = philox(self.seed, "mixture").permutation(which)
        before = np.empty(len(which), np.int32)
        for number in range(len(sizes)):
            here = which == number
            before[here] = np.arange(int(here.sum()))
        return which, before
