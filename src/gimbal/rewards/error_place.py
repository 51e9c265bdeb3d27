"""How close a predicted error position is to the true one."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.records import Group
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class ErrorPlace(AbstractReward):
    """Trains a judge to find the first wrong step, counted from 0, or to answer -1 if there is none (FAPO, arXiv:2510.22543).

    1 - |e - e*| / S if the answer e and the task's column ``column`` e* both name a step, S being the column ``steps``; 1 if both are
    -1; -1 if only one of them is, or if no integer of at least -1 was answered. Not applicable to tasks without the columns.

    - e = e*: 1.
    - an error at the wrong end of long reasoning: near 0, and never as bad as a false alarm.

    Confidence: verified.
    """

    column: str = "error"
    steps: str = "steps"
    opening: str = "<answer>"
    closing: str = "</answer>"
    name: str = "error_place"

    def __call__(self, group: Group) -> list[float | None]:
        true, steps = group.task.columns.get(self.column), group.task.columns.get(self.steps)
        if true is None or steps is None:
            return [None] * len(group.rollouts)
        return [self._score(rollout.text, int(true), max(1, int(steps))) for rollout in group.rollouts]

    def _score(self, text: str, true: int, steps: int) -> float:
        answer = extract(text, self.opening, self.closing)
        try:
            said = int(answer or "")
        except ValueError:  # also of 4,301 digits
            return -1.0
        if said < -1 or (said == -1) != (true == -1):
            return -1.0
        # In integers: what a model says may be too large for a float.
        return 1 - min(abs(said - true), 2 * steps) / steps
