"""Weights tasks by difficulty, more where the policy fails more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gimbal.advantages.shapings.emphasised import COLUMN, Emphasised
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.config.own import started
from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumAround, AbstractCurriculumSpec, Progress
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.success import AbstractSuccessTracking, outcomes
from gimbal.environments.base import AbstractTasks
from gimbal.records import Group, Task


@dataclass(frozen=True, kw_only=True)
class Adversarial(AbstractSuccessTracking, AbstractCurriculumSpec):
    """Weights the gradient of each difficulty bin by an adversary that favours bins where the policy fails (Prompt-GDRO,
    arXiv:2601.19280).

    Tasks are in ``bins`` equal bins by p, the mean of a Beta model of the task: a <- prior + fresh (a - prior) + sum r on a visit
    with outcomes r in [0, 1], and a <- prior + fade (a - prior) in each step, b alike. A task leaves its bin where p is ``slack``
    beyond the edge. With l_b the mean of 1 - r over the groups of a step in bin b,

        S_b <- (1 - blend) S_b + blend l_b,    omega_b = min(exp(rate S_b), most)

    A task carries omega of its bin in the column ``emphasis``. advantages.Emphasised multiplies advantages by it: the
    gradient of max over q of sum_b q_b l_b + H(q) / rate has these weights. ``order`` chooses the tasks: none is sampled more often.

    - ``rate`` = 0: every weight is 1.
    - ``bins`` = 1: all tasks have the same weight.

    It acts at dispatch, so groups in flight keep their weights. Outcomes are the reward ``name``, or the whole score if it is empty.
    Tasks must repeat for bins to be meaningful: tasks.size=256.

    Published: ``rate`` 0.1, ``blend`` 0.1, ``most`` 10, 10 bins by pass@8, and as loss the surrogate with its KL.

    Confidence: partial; the weights are verified; ours: 1 - r as loss, because the surrogate is 0 on policy, ``rate`` 1, ``slack``, and
    bins by pass@1.
    """

    order: AbstractCurriculumSpec = Epochs()
    bins: int = 10
    rate: float = 1.0
    blend: float = 0.1
    most: float = 10.0
    slack: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins < 1 or not 0 < self.blend <= 1 or self.most < 1 or min(self.rate, self.slack) < 0:
            raise ValueError(
                f"Adversarial has bins {self.bins} and most {self.most} (1 or above), blend {self.blend} (above 0, at most 1), rate "
                f"{self.rate} and slack {self.slack} (0 or above)"
            )

    def start(self, tasks: AbstractTasks, seed: int) -> AdversarialCurriculum:
        return AdversarialCurriculum(self, started(self.order, AbstractCurriculum, tasks, seed))

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if not whole.has(Emphasised):
            yield Refusal(
                "Adversarial sets weights that nothing reads: add Emphasised() to shaping, and to rewards "
                f"Expected(column='{COLUMN}', name='{COLUMN}', weight=0.0)"
            )


class AdversarialCurriculum(AbstractCurriculumAround):
    """The live half of ``Adversarial``."""

    def __init__(self, spec: Adversarial, order: AbstractCurriculum) -> None:
        self.spec, self.order, self.model = spec, order, spec.model()
        self.held: dict[str, int] = {}  # bins of tasks
        self.scores = [0.0] * spec.bins
        self.lost: dict[int, list[float]] = {}  # by bin: losses of groups observed since the last step

    def weight(self, place: int) -> float:
        exponent = min(self.spec.rate * self.scores[place], math.log(self.spec.most))
        return math.exp(exponent)

    def bin(self, task: str) -> int:
        chance, count = float(self.model.chance([task])[0]), self.spec.bins
        held = self.held.get(task)
        if held is None or not held / count - self.spec.slack <= chance <= (held + 1) / count + self.spec.slack:
            held = self.held[task] = min(int(chance * count), count - 1)
        return held

    def next(self) -> Task:
        task = self.order.next()
        return replace(task, columns={**task.columns, COLUMN: self.weight(self.bin(task.id))})

    def observe(self, group: Group) -> None:
        self.order.observe(group)
        earned = outcomes(group, self.spec.name)
        place = self.bin(group.task.id)
        self.lost[place] = sorted([*self.lost.get(place, []), 1 - float(earned.mean())])  # whoever came first
        self.model.visit(group.task.id, earned)

    def step(self, progress: Progress) -> None:
        self.order.step(progress)
        for place, losses in self.lost.items():
            mean = math.fsum(losses) / len(losses)  # exact, whatever the order in which they came
            self.scores[place] += self.spec.blend * (mean - self.scores[place])
        self.lost = {}
        self.model.step()

    def metrics(self) -> dict[str, float]:
        """``largest`` and ``smallest`` weight of a bin that holds a task."""
        weights = [self.weight(place) for place in set(self.held.values())]
        own = {"Adversarial/largest": max(weights), "Adversarial/smallest": min(weights)} if weights else {}
        return {**self.order.metrics(), **own}

    def state_dict(self) -> dict[str, Any]:
        own = {"held": dict(self.held), "scores": list(self.scores), "model": self.model.state_dict()}
        return {**super().state_dict(), **own, "lost": {place: list(losses) for place, losses in self.lost.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.held, self.scores = dict(state["held"]), list(state["scores"])
        self.lost = {place: list(losses) for place, losses in state["lost"].items()}
        self.model.load_state_dict(state["model"])
