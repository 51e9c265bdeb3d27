"""Skips tasks without signal, more likely the longer they have had none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gimbal.config.own import started
from gimbal.dataflow.base import (
    AbstractCurriculum,
    AbstractCurriculumAround,
    AbstractCurriculumSpec,
    Progress,
)
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.success import kind, outcomes
from gimbal.environments.base import AbstractTasks
from gimbal.ops import philox
from gimbal.records import Group, Task

LEAST, MOST = 0.01, 0.99  # of the base chances


@dataclass(frozen=True, kw_only=True)
class Skipping(AbstractCurriculumSpec):
    """Skips a task, before any sampling, if its last groups all had zero variance (GRESO, arXiv:2506.02177).

    z = the number of a task's consecutive groups whose rewards are all equal, on the same side of 1/2; one on the other side restarts
    at 1, a mixed one resets to 0. A task from ``order`` is used with probability max(p^z, floor), with a base probability p and a floor
    for easy (all right) and for hard tasks (all wrong). After each step, each base probability moves by ``rate``: down if the share of
    such groups in the step is at least ``easy_share`` or ``hard_share``, else up, within [0.01, 0.99]. It is fixed during the first
    epoch.

    - ``base`` = 1 and ``rate`` = 0: nothing is skipped.
    - ``base`` = 0.01, floors of 0 and ``rate`` = 0: after one such group, a task hardly ever returns.

    After as many consecutive skips as there are tasks, the next one is used. Outcomes are the reward ``name``, or the whole score if it
    is empty, clipped to [0, 1]. This decides which tasks are used, filters.ZeroVariance which groups train: use both. Tasks must repeat
    for this to work: tasks.size=256.

    Published: ``base`` 0.5, shares .083 and .167, ``rate`` .01, floors .1 and .4.

    Confidence: verified.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    order: AbstractCurriculumSpec = Epochs()
    base: float = 0.5
    rate: float = 0.01
    easy_share: float = 0.083
    hard_share: float = 0.167
    easy_floor: float = 0.1
    hard_floor: float = 0.4
    name: str = ""

    def __post_init__(self) -> None:
        shares = (self.base, self.rate, self.easy_share, self.hard_share, self.easy_floor, self.hard_floor)
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"Skipping has chances and shares from 0 to 1; got {shares}")

    def start(self, tasks: AbstractTasks, seed: int) -> SkippingCurriculum:
        return SkippingCurriculum(self, started(self.order, AbstractCurriculum, tasks, seed), len(tasks), seed)


class SkippingCurriculum(AbstractCurriculumAround):
    """The live half of ``Skipping``."""

    def __init__(self, spec: Skipping, order: AbstractCurriculum, size: int, seed: int) -> None:
        self.spec, self.order, self.size, self.seed = spec, order, size, seed
        self.streaks: dict[str, tuple[str, int]] = {}  # which kind, how many; of tasks whose last group was not mixed
        self.chances = {"solved": spec.base, "failed": spec.base}
        self.met = 0  # tasks that order gave
        self.asked = 0
        self.came: Counter[str] = Counter()  # groups of the present step, by kind

    def next(self) -> Task:
        self.asked += 1
        left = self.size  # the last of a round is asked in any case
        while True:
            task = self.order.next()
            self.met, left = self.met + 1, left - 1
            if left < 1 or philox(self.seed, "skip", self.met).random() < self.chance(task):
                return task

    def chance(self, task: Task) -> float:
        """That it is asked."""
        if task.id not in self.streaks:
            return 1.0
        side, streak = self.streaks[task.id]
        floor = {"solved": self.spec.easy_floor, "failed": self.spec.hard_floor}[side]
        return max(self.chances[side] ** streak, floor)

    def observe(self, group: Group) -> None:
        self.order.observe(group)
        side = kind(outcomes(group, self.spec.name))
        self.came[side] += 1
        before, streak = self.streaks.pop(group.task.id, ("", 0))
        if side != "mixed":
            self.streaks[group.task.id] = side, streak + 1 if side == before else 1

    def step(self, progress: Progress) -> None:
        self.order.step(progress)
        groups = self.came.total()
        if groups and self.met > self.size and self.spec.rate:
            for side, share in (("solved", self.spec.easy_share), ("failed", self.spec.hard_share)):
                rate = -self.spec.rate if self.came[side] >= share * groups else self.spec.rate
                self.chances[side] = min(max(self.chances[side] + rate, LEAST), MOST)
        self.came = Counter()

    def metrics(self) -> dict[str, float]:
        """``skipped``: of the tasks that came up so far. ``easy`` and ``hard``: the base chances."""
        own = {
            "skipped": 1 - self.asked / max(1, self.met),
            "easy": self.chances["solved"],
            "hard": self.chances["failed"],
        }
        return {**self.order.metrics(), **{f"Skipping/{name}": value for name, value in own.items()}}

    def state_dict(self) -> dict[str, Any]:
        return {
            "order": self.order.state_dict(),
            "streaks": dict(self.streaks),
            "chances": dict(self.chances),
            "counts": [self.met, self.asked],
            "came": dict(self.came),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.order.load_state_dict(state["order"])
        self.streaks = {task: (side, streak) for task, (side, streak) in state["streaks"].items()}
        self.chances, (self.met, self.asked) = dict(state["chances"]), state["counts"]
        self.came = Counter(state["came"])
