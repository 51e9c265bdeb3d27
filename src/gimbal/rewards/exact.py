"""Exact match of the answer."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.records import Group
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class ExactAnswer(AbstractReward):
    """1 if the extracted answer equals ``task.answer`` (both stripped), else 0; does not apply to tasks without an answer.

    The answer is between the last ``opening`` and the ``closing`` after it; an empty ``opening`` means the start of the text, an
    empty ``closing`` its end. A completion without an answer scores 0.
    """

    name: str = "exact"
    opening: str = "<answer>"
    closing: str = "</answer>"

    def answer(self, text: str) -> str | None:
        return extract(text, self.opening, self.closing)

    def __call__(self, group: Group) -> list[float | None]:
        if group.task.answer is None:
            return [None] * len(group.rollouts)
        right = group.task.answer.strip()
        return [float(extract(r.text, self.opening, self.closing) == right) for r in group.rollouts]
