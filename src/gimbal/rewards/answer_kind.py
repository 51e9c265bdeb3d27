"""Which answers of a group are the same."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.records import Group
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class AnswerKind(AbstractReward):
    """A number for each distinct extracted answer of a group, from 0 in order of appearance; no answer is also a kind.

    With weight 0 it is not a reward; methods that compare answers read it as "score/kind".
    """

    opening: str = "<answer>"
    closing: str = "</answer>"
    name: str = "kind"
    weight: float = 0.0

    def __call__(self, group: Group) -> list[float | None]:
        number: dict[str | None, int] = {}
        answers = [extract(rollout.text, self.opening, self.closing) for rollout in group.rollouts]
        return [float(number.setdefault(answer, len(number))) for answer in answers]
