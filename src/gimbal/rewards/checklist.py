"""The share of a list of yes-or-no questions that is answered yes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.judge import JudgeScore


@dataclass(frozen=True, kw_only=True)
class Checklist(AbstractReward):
    """The share of many small checks that pass, instead of one grade; tasks can add their own (ThinkRL-Edit, arXiv:2601.03467).

    r = satisfied / items. The items are those of ``items`` that apply, and the entries of the task's column ``column``: regular
    expressions to find in the completion or, with a ``judge``, questions that fill {item} in its template, which may show the {picture}
    that was made. An item is satisfied if it scores at least ``threshold``. Not applicable without any item. If a verdict is missing,
    the rollout has no score.

    - one item: that item's verdict, 0 or 1.
    - every item gives all rollouts the same verdict: no advantage in any group.

    Confidence: partial; binary items of each sample are read; ours: items by rules next to a judge's.
    """

    is_method: ClassVar[bool] = True

    items: tuple[AbstractReward, ...] = ()
    column: str = "checklist"
    judge: JudgeScore | None = None
    threshold: float = 0.5
    name: str = "checklist"

    def open(self) -> Checklist:
        judge = None if self.judge is None else self.judge.open()
        assert judge is None or isinstance(judge, JudgeScore)
        return replace(self, items=tuple(item.open() for item in self.items), judge=judge)

    def close(self) -> None:
        for item in self.items:
            item.close()
        if self.judge is not None:
            self.judge.close()

    def __call__(self, group: Group) -> list[float | None]:
        columns = [item(group) for item in self.items] + self._of_task(group)
        if not columns:
            return [None] * len(group.rollouts)
        return [self._share([v for v in values if v is not None]) for values in zip(*columns, strict=True)]

    def _share(self, values: Sequence[float]) -> float | None:
        owed = next((value for value in values if math.isnan(value)), None)
        if owed is not None or not values:
            return owed
        return sum(value >= self.threshold for value in values) / len(values)

    def _of_task(self, group: Group) -> list[list[float | None]]:
        """Verdicts on each of the task's own items, by rollout."""
        task = group.task
        entries = task.columns.get(self.column, ())
        if self.judge is None:
            return [[self._found(entry, rollout.text) for rollout in group.rollouts] for entry in entries]
        asked = [replace(task, columns={**task.columns, "item": entry}) for entry in entries]
        questions = [self.judge.question(one, episode) for one in asked for episode in group.episodes]
        verdicts, size = self.judge.verdicts(questions), len(group.rollouts)
        return [verdicts[start : start + size] for start in range(0, len(verdicts), size)]

    def _found(self, entry: str, text: str) -> float:
        try:
            return float(re.search(entry, text) is not None)
        except re.error as error:
            raise ValueError(
                f"the item {entry!r} in the column {self.column!r} is not a valid regular expression ({error}); fix it, or give a judge"
            ) from error
