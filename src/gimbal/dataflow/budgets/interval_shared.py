"""Allocates rollouts where one more narrows the confidence interval of the mean reward most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gimbal.composition import GROWS, Advice, Composition, Refusal, Verdict
from gimbal.dataflow.base import AbstractBudgetSpec, Begun, Plan
from gimbal.dataflow.budgets.sizes import AbstractSizedBudget
from gimbal.dataflow.success import outcomes
from gimbal.ops.confidence import student_quantile
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class IntervalShared(AbstractBudgetSpec):
    """Half a round's rollouts equally to all its tasks, the rest where one more shrinks the confidence interval most, with a bonus for
    tasks tried least (XRPO, arXiv:2510.06672).

    With n rollouts of task q and the deviation s_q of their outcomes, h(n) = t(1 - alpha / 2, n - 1) s_q / sqrt(n). One at a time the
    rest goes to the largest h(n) - h(n + 1) + bonus sqrt(log(1 + T) / n), where T counts all rollouts of the round, with the current
    s_q. The rest is allocated in ``parts`` equal parts, and s_q is updated in between. A round is the tasks dispatched together; each
    gets num_generations on average, ``first`` of them (0: half) initially, and at most ``most`` (0: four times as many).

    - ``bonus`` = 0 and equal deviations: equal shares.
    - ``bonus`` -> infinity: equal shares.
    - ``first`` = num_generations: as Fixed.

    A round waits for its slowest group before it continues. Tasks whose outcomes are all equal have s = 0 and get only the bonus.

    Published: the formulas, ``alpha`` 0.05; ours: ``bonus`` 0.1, half at first, one rollout at a time.

    Confidence: partial.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    alpha: float = 0.05
    bonus: float = 0.1
    first: int = 0
    most: int = 0
    parts: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or self.bonus < 0 or self.parts < 1 or (self.first and self.first < 2):
            raise ValueError(
                f"IntervalShared has alpha {self.alpha} (between 0 and 1), bonus {self.bonus} (0 or above), parts {self.parts} (1 or "
                f"more) and first {self.first} (0: half; at least 2, for a deviation)"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({GROWS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        mean = whole.run.num_generations
        if self.first > mean:
            yield Refusal(
                f"IntervalShared begins with {self.first} rollouts of each task, and num_generations={mean} is its average: "
                f"num_generations={2 * self.first}, or budget.first=0 for half"
            )
        elif mean == (self.first or max(2, mean // 2)):
            yield Advice(
                f"IntervalShared begins with all {mean} rollouts that each task gets on average, so it shares none: "
                f"num_generations={2 * mean}" + (", or budget.first=0 for half" if self.first else "")
            )

    def start(self, rollouts: int, max_length: int) -> IntervalSharedBudget:
        return IntervalSharedBudget(self, rollouts, max_length)

    def priority(self, deviation: float, count: int, total: int) -> float:
        """What one more rollout of a task is worth that has ``count`` of the ``total`` of its round."""
        half = [student_quantile(1 - self.alpha / 2, n - 1) * deviation / math.sqrt(n) for n in (count, count + 1)]
        return half[0] - half[1] + self.bonus * math.sqrt(math.log1p(total) / count)


class IntervalSharedBudget(AbstractSizedBudget):
    """The live half of ``IntervalShared``."""

    rounds: ClassVar[bool] = True

    def __init__(self, spec: IntervalShared, rollouts: int, max_length: int) -> None:
        self.spec, self.mean, self.max_length = spec, rollouts, max_length
        self.first = min(spec.first or max(2, rollouts // 2), rollouts)
        self.most = spec.most or 4 * rollouts
        if self.first < 2 or self.most < rollouts:
            raise ValueError(
                f"IntervalShared begins with {self.first} rollouts and has at most {self.most}, with num_generations={rollouts}: let "
                "num_generations be at least 2 and most at least num_generations"
            )
        super().__init__(type(spec).__name__)

    def plan(self, tasks: Sequence[Task]) -> list[Plan]:
        return [Plan(rollouts=self.first, max_length=self.max_length)] * len(tasks)

    def more(self, begun: Sequence[Begun]) -> list[int]:
        """Of groups that were lost the rollouts are not spent again."""
        asked = [b.asked for b in begun]
        left = self.mean * len(begun) - sum(asked)
        part = math.ceil((self.mean - self.first) * len(begun) / self.spec.parts)
        more = [0] * len(begun)
        deviations = [float(outcomes(b.group, self.spec.name).std()) for b in begun]
        for _ in range(max(0, min(left, part))):
            counts = [a + m for a, m in zip(asked, more, strict=True)]
            total = sum(counts)
            worth = [
                self.spec.priority(s, n, total) if n < self.most else -math.inf
                for s, n in zip(deviations, counts, strict=True)
            ]
            best = max(range(len(begun)), key=lambda place: (worth[place], -counts[place], -place))
            if worth[best] == -math.inf:
                break
            more[best] += 1
        return more
