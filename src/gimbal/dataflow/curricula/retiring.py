"""Solved tasks rest and are retested less and less often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gimbal.config.own import started
from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumAround, AbstractCurriculumSpec, Progress
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.success import kind, outcomes
from gimbal.environments.base import AbstractTasks
from gimbal.records import Group, Task


@dataclass(frozen=True, kw_only=True)
class Retiring(AbstractCurriculumSpec):
    """A task whose last ``after`` groups were all right is not used for ``rest`` steps; if still right then, it rests ``longer`` times
    as long, at most ``most`` steps; wrong once, it returns (spaced repetition, textbook).

    ``order`` proposes tasks, and resting ones are skipped; if all of them rest, the one with the shortest remaining rest is used.
    Outcomes are the reward ``name``, or the whole score if it is empty, clipped to [0, 1]; a group is right if they are equal and above
    1/2.

    - ``rest`` = 0: ``order``.
    - ``longer`` = 1: a test every ``rest`` steps.
    - ``rest`` above the steps of the run: solved tasks never return, and forgetting goes unnoticed.

    Tasks must repeat for this to work: tasks.size=256. Ours.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    order: AbstractCurriculumSpec = Epochs()
    after: int = 1
    rest: int = 8
    longer: float = 2.0
    most: int = 256
    name: str = ""

    def __post_init__(self) -> None:
        if self.after < 1 or not 0 <= self.rest <= self.most or self.longer < 1:
            raise ValueError(
                f"Retiring has after {self.after} (1 or more), rest {self.rest} (from 0 to most, {self.most}) and longer {self.longer} "
                "(1 or more)"
            )

    def start(self, tasks: AbstractTasks, seed: int) -> RetiringCurriculum:
        return RetiringCurriculum(self, started(self.order, AbstractCurriculum, tasks, seed), len(tasks))


class RetiringCurriculum(AbstractCurriculumAround):
    """The live half of ``Retiring``."""

    def __init__(self, spec: Retiring, order: AbstractCurriculum, size: int) -> None:
        self.spec, self.order, self.size = spec, order, size
        self.now = 0
        self.streaks: dict[str, int] = {}  # groups in a row that were right
        # The step at which a task is tested, and how long it rested for that.
        self.resting: dict[str, tuple[float, float]] = {}
        self.passed = 0  # over, in the whole run
        self.tests = self.failed = 0  # groups of tasks that had rested, and those of them that were not all right

    def next(self) -> Task:
        least: tuple[float, Task] | None = None
        for _ in range(self.size):
            task = self.order.next()
            until = self.resting.get(task.id, (0, 0))[0]
            if until <= self.now:
                return task
            self.passed += 1
            if least is None or until < least[0]:
                least = until, task
        assert least is not None, "a curriculum needs at least one task"
        return least[1]

    def observe(self, group: Group) -> None:
        self.order.observe(group)
        task = group.task.id
        right = kind(outcomes(group, self.spec.name)) == "solved"
        before = self.resting.pop(task, None)
        if before is not None:
            self.tests += 1
            self.failed += not right
        self.streaks[task] = self.streaks.get(task, 0) + 1 if right else 0
        if right and self.streaks[task] >= self.spec.after:
            rest = min(self.spec.rest if before is None else before[1] * self.spec.longer, self.spec.most)
            self.resting[task] = self.now + rest, rest

    def step(self, progress: Progress) -> None:
        self.order.step(progress)
        self.now = progress.version

    def metrics(self) -> dict[str, float]:
        """``resting``: of all tasks. ``forgotten``: of the tests so far those that were not all right."""
        resting = sum(until > self.now for until, _ in self.resting.values())
        own = {"resting": resting / self.size, "passed_over": self.passed, "tests": self.tests}
        if self.tests:
            own["forgotten"] = self.failed / self.tests
        return {**self.order.metrics(), **{f"Retiring/{name}": float(value) for name, value in own.items()}}

    def state_dict(self) -> dict[str, Any]:
        return {
            "order": self.order.state_dict(),
            "now": self.now,
            "streaks": dict(self.streaks),
            "resting": dict(self.resting),
            "counts": [self.passed, self.tests, self.failed],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.order.load_state_dict(state["order"])
        self.now, self.streaks = state["now"], dict(state["streaks"])
        self.resting = {task: (until, rest) for task, (until, rest) in state["resting"].items()}
        self.passed, self.tests, self.failed = state["counts"]
