"""A growing limit on the turns of an episode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gimbal.composition import LIMITS_TURNS, Composition, Refusal, Verdict
from gimbal.config.own import started
from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumAround, AbstractCurriculumSpec, Progress
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.environments.base import AbstractTasks
from gimbal.records import Task

COLUMN = "turns"


@dataclass(frozen=True, kw_only=True)
class Horizon(AbstractCurriculumSpec):
    """A limit on the turns of an episode that rises in stages: short episodes first, then longer ones (ScalingInter of AgentGym-RL,
    arXiv:2509.08755).

        turns at step g:  h_n,  n = min(S, 1 + floor(g / every)),  for ``turns`` h_1 < ... < h_S

    It is the task's column ``turns``, where workflows.Dialogue truncates an episode that wants another turn. A truncated episode keeps
    what it has earned so far, and counts in ``tool/cut_frac``. ``order`` chooses the tasks.

    - one stage: a fixed limit.
    - a limit that no episode reaches: ``order`` unchanged.

    Groups in flight keep the limit of their dispatch, and evaluation tasks have none.

    Published: 10, 20, 30 turns, each for 100 steps; 8, 12, 15 for 80 on web tasks.

    Confidence: verified.
    """

    order: AbstractCurriculumSpec = Epochs()
    turns: tuple[int, ...] = (10, 20, 30)
    every: int = 100

    def __post_init__(self) -> None:
        if not self.turns or sorted(set(self.turns)) != list(self.turns) or self.turns[0] < 1 or self.every < 1:
            raise ValueError(
                f"Horizon.turns are {self.turns}, rising numbers of turns from 1 on, and every is {self.every}, 1 step or more"
            )

    def start(self, tasks: AbstractTasks, seed: int) -> HorizonCurriculum:
        return HorizonCurriculum(self, started(self.order, AbstractCurriculum, tasks, seed))

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(LIMITS_TURNS):
            yield Refusal(
                "Horizon limits turns, but nothing in this run counts them: workflow=Dialogue(), or curriculum=Epochs()"
            )


class HorizonCurriculum(AbstractCurriculumAround):
    """The live half of ``Horizon``."""

    def __init__(self, spec: Horizon, order: AbstractCurriculum) -> None:
        self.spec, self.order, self.now = spec, order, 0

    @property
    def turns(self) -> int:
        return self.spec.turns[min(self.now // self.spec.every, len(self.spec.turns) - 1)]

    def next(self) -> Task:
        task = self.order.next()
        return replace(task, columns={**task.columns, COLUMN: self.turns})

    def step(self, progress: Progress) -> None:
        self.order.step(progress)
        self.now = progress.version

    def metrics(self) -> dict[str, float]:
        """``turns``: the limit that tasks are given out with."""
        return {**self.order.metrics(), "Horizon/turns": float(self.turns)}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "now": self.now}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.now = state["now"]
