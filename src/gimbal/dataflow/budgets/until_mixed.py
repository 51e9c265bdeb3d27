"""Grows a group until it has a signal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gimbal.composition import GROWS, Advice, Composition, Refusal, Verdict
from gimbal.dataflow.base import AbstractBudgetSpec, Begun, Plan
from gimbal.dataflow.budgets.sizes import AbstractSizedBudget
from gimbal.dataflow.success import outcomes
from gimbal.records import Group, Task


@dataclass(frozen=True, kw_only=True)
class UntilMixed(AbstractBudgetSpec):
    """``first`` rollouts of a task, then ``further`` at a time while all outcomes are equal, up to num_generations: sampling stops once
    there is a signal. Ours (sequential sampling, textbook).

    - ``first`` = num_generations: as Fixed.
    - a task that is always, or never, solved: num_generations, as Fixed.

    Rollouts saved on tasks with intermediate pass rates are not spent elsewhere: for an equal token budget raise num_generations. A
    group ends on its first different outcome, so its mean is a biased estimate of the pass rate (a rare success weighs too much), and a
    step has fewer rollouts of intermediate tasks. Outcomes are the reward ``name``, or the whole score if it is empty.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    first: int = 4
    further: int = 4
    name: str = ""

    def __post_init__(self) -> None:
        if self.first < 2 or self.further < 1:
            raise ValueError(
                f"UntilMixed has first {self.first} and further {self.further} rollouts; 2 are the fewest that can differ, and 1 more"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({GROWS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        most = whole.run.num_generations
        if self.first > most:
            yield Refusal(
                f"UntilMixed begins with {self.first} rollouts of a task, and num_generations={most} is the most that it may have: "
                f"num_generations={2 * self.first}, or a budget.first below {most}"
            )
        elif self.first == most:
            yield Advice(
                f"UntilMixed begins with all {most} rollouts that a task may have, so it adds none: num_generations={2 * most}, or a "
                f"budget.first below {most}"
            )

    def start(self, rollouts: int, max_length: int) -> UntilMixedBudget:
        return UntilMixedBudget(self, rollouts, max_length)


class UntilMixedBudget(AbstractSizedBudget):
    """The live half of ``UntilMixed``."""

    def __init__(self, spec: UntilMixed, rollouts: int, max_length: int) -> None:
        self.spec, self.most, self.max_length = spec, rollouts, max_length
        super().__init__(type(spec).__name__)

    def plan(self, tasks: Sequence[Task]) -> list[Plan]:
        return [Plan(rollouts=min(self.spec.first, self.most), max_length=self.max_length)] * len(tasks)

    def more(self, begun: Sequence[Begun]) -> list[int]:
        return [min(self.spec.further, self.most - b.asked) if self._alike(b.group) else 0 for b in begun]

    def _alike(self, group: Group) -> bool:
        found = outcomes(group, self.spec.name)
        return bool(found.max() == found.min())
