"""The expected score of a task, as a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gimbal.advantages.base import AbstractAdvantage
from gimbal.composition import Advice, Composition, Verdict
from gimbal.records import Group
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class Expected(AbstractReward):
    """The value of the task's column ``column``, equal for all its rollouts: with weight -1, a baseline that also works for single
    rollouts.

    curricula.Tracked fills ``expected``. A column of the dataset works too. Not applicable to tasks without it.
    """

    is_method: ClassVar[bool] = True

    column: str = "expected"
    name: str = "expected"
    weight: float = -1.0

    def __call__(self, group: Group) -> list[float | None]:
        value = group.task.columns.get(self.column)
        return [None if value is None else float(value)] * len(group.rollouts)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.weight and any("group_N" in part.needs for part in whole.all(AbstractAdvantage)):
            yield Advice(
                "Expected is the same for a whole group, so a group estimator cancels it: use ReturnToGo, or weight 0"
            )
