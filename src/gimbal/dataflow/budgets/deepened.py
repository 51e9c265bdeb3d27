"""Further rollouts for hard tasks, until their group has as much signal as the best one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gimbal.composition import GROWS, Advice, Composition, Verdict
from gimbal.dataflow.base import AbstractBudgetSpec, Begun, Plan
from gimbal.dataflow.budgets.sizes import AbstractSizedBudget
from gimbal.dataflow.success import outcomes
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Deepened(AbstractBudgetSpec):
    """A second stage for hard tasks, so that the sum of |advantages| reaches that of a task of pass rate 1/2 (DARS, arXiv:2508.13755).

    After N = num_generations rollouts of mean outcome a (0 counts as 1 / (2 N)): S = 2 a (1 - a), or 2 sqrt(a (1 - a)) with
    ``scaled``, for estimators that divide by the group's deviation. With A = N / 2, or N if scaled, a group with a < 1/2 gets

        treatment "equal"     (A - N S) / S              more: to the peak, N / (4 a (1 - a)) in all
        treatment "hardness"  (2 (1 - a) A - N S) / S    more: N / (2 a) in all, an inverse law

    rounded up, and at most ``most`` in all (both in all are without ``scaled``). All of them are scored together.

    - ``most`` = N, or a >= 1/2: nothing is added.

    Whether a group grows depends on its first rollouts, so the mean of all is a biased estimate of the pass rate p, upwards: with
    N = 8 by 0.03 to 0.04 at p from 0.2 to 0.5, for a first mean that is too low is diluted and one that is too high stays.

    Outcomes are the reward ``name``, or the whole score if it is empty, clipped to [0, 1]. filters.ZeroVariance drops groups still
    without a success. This uses more rollouts than a fixed budget: compare at equal tokens.

    Published: N 8, ``most`` 32 for equal and 64 for hardness, advantages without scale.

    Confidence: verified.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    treatment: str = "hardness"
    most: int = 64
    scaled: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if self.treatment not in ("equal", "hardness"):
            raise ValueError(f'Deepened.treatment is {self.treatment!r}; it is "equal" or "hardness"')

    def effects(self) -> frozenset[str]:
        return frozenset({GROWS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.most == (first := whole.run.num_generations):
            yield Advice(
                f"Deepened.most is {first}, as many as num_generations, so it deepens nothing: budget.most={4 * first}"
            )

    def start(self, rollouts: int, max_length: int) -> DeepenedBudget:
        return DeepenedBudget(self, rollouts, max_length)

    def further(self, first: int, mean: float) -> int:
        """How many more, after ``first`` rollouts with this mean outcome."""
        mean = mean or 0.5 / first
        if mean >= 0.5:
            return 0
        signal = 2 * math.sqrt(mean * (1 - mean)) if self.scaled else 2 * mean * (1 - mean)
        peak = first if self.scaled else first / 2
        wanted = peak * (2 * (1 - mean) if self.treatment == "hardness" else 1)
        exact = (wanted - first * signal) / signal
        return max(0, min(math.ceil(exact - 1e-9), self.most - first))


class DeepenedBudget(AbstractSizedBudget):
    """The live half of ``Deepened``."""

    def __init__(self, spec: Deepened, rollouts: int, max_length: int) -> None:
        if rollouts > spec.most:
            raise ValueError(
                f"Deepened.most is {spec.most}, and each group begins with num_generations={rollouts}: raise most, or lower that"
            )
        self.spec, self.first, self.max_length = spec, rollouts, max_length
        super().__init__(type(spec).__name__)

    def plan(self, tasks: Sequence[Task]) -> list[Plan]:
        return [Plan(rollouts=self.first, max_length=self.max_length)] * len(tasks)

    def more(self, begun: Sequence[Begun]) -> list[int]:
        return [
            self.spec.further(self.first, float(outcomes(b.group, self.spec.name).mean()))
            if b.asked == self.first
            else 0
            for b in begun
        ]
