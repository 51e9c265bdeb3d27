"""Every task carries the policy's past success on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gimbal.config.own import started
from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumAround, AbstractCurriculumSpec
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.environments.base import AbstractTasks
from gimbal.records import Group, Task

COLUMN = "expected"


@dataclass(frozen=True, kw_only=True)
class Tracked(AbstractCurriculumSpec):
    """Tracks each task's success rate with a Beta distribution, whose mean rewards.Expected uses as a baseline (MSSR,
    arXiv:2512.18215).

    v = a / (a + b), in the task's column ``expected``; after each rollout with reward r in [0, 1]:
    a <- forget a + r, b <- forget b + 1 - r. It starts at a = b = ``prior``, so v = 1/2. It uses the
    reward ``name``, or the whole score if it is empty, clipped to [0, 1]. ``order`` chooses the tasks.

    - ``forget`` = 1: the mean of all rewards so far, with 2 ``prior`` rollouts of reward 1/2 before them.
    - ``forget`` = 0: the last reward.

    Published: ``forget`` between 0.875 and 0.96, more forgetting under more drift; ours is one constant. A task that
    never repeats keeps v = 1/2: made for sets with several epochs.

    Confidence: partial; ours: a constant ``forget``, and the prior instead of one rollout per task.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    order: AbstractCurriculumSpec = Epochs()
    forget: float = 0.92
    prior: float = 0.5
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.forget <= 1 or self.prior <= 0:
            raise ValueError(f"Tracked has forget {self.forget}, from 0 to 1, and prior {self.prior}, above 0")

    def start(self, tasks: AbstractTasks, seed: int) -> TrackedCurriculum:
        return TrackedCurriculum(self, started(self.order, AbstractCurriculum, tasks, seed))


class TrackedCurriculum(AbstractCurriculumAround):
    """The live half of ``Tracked``."""

    def __init__(self, spec: Tracked, order: AbstractCurriculum) -> None:
        self.spec, self.order = spec, order
        self.counts: dict[str, list[float]] = {}  # [a, b] by the task's id

    def next(self) -> Task:
        task = self.order.next()
        a, b = self._counts_of(task)
        return replace(task, columns={**task.columns, COLUMN: a / (a + b)})

    def observe(self, group: Group) -> None:
        self.order.observe(group)
        a, b = self._counts_of(group.task)
        for rollout in group.episodes:
            earned = rollout.scores[self.spec.name] if self.spec.name else rollout.earned
            reward = min(1.0, max(0.0, earned))
            a, b = self.spec.forget * a + reward, self.spec.forget * b + 1 - reward
        self.counts[group.task.id] = [a, b]

    def _counts_of(self, task: Task) -> list[float]:
        return self.counts.get(task.id, [self.spec.prior] * 2)

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order.state_dict(), "counts": {key: list(pair) for key, pair in self.counts.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.order.load_state_dict(state["order"])
        self.counts = {key: list(pair) for key, pair in state["counts"].items()}
