"""The majority's answer as a pseudo-label."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal

from gimbal.records import Group
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward


def majority(answers: list[str | None]) -> str | None:
    """The most common answer, ties going to the first seen; None without answers."""
    votes = Counter(answer for answer in answers if answer is not None)
    return votes.most_common(1)[0][0] if votes else None  # in the order in which they were first seen


@dataclass(frozen=True, kw_only=True)
class Majority(AbstractReward):
    """Agreement with the majority of the group: reinforcement without labels (TTRL, arXiv:2504.16084).

    With a_1 .. a_V the answers of the rollouts and y the most common of them, ties going to the first seen: r_j = 1 where a_j = y, else
    0. Answers are compared as text; a rollout without one has no vote and scores 0. With filters.FirstOf fewer rollouts train than
    vote. Labels are read only by the measures that evaluate the method where there are labels:

    ``measure``:
    - "agreement": r_j.
    - "share": the share of the rollouts that gave y, the same for all of them.
    - "label": 1 where y is the task's answer, the same for all.
    - "truth": 1 where r_j is what it would be with the label y*; at least "label", since answers that differ from a wrong y are mostly
      wrong too.

    - one rollout, or all of one answer: r = 1 everywhere, and no advantage.

    Confidence: verified; ours: answers are compared as text, where the paper's verifier compares values.
    """

    by_group: ClassVar[bool] = True
    is_method: ClassVar[bool] = True

    name: str = "majority"
    measure: Literal["agreement", "share", "label", "truth"] = "agreement"
    opening: str = "<answer>"
    closing: str = "</answer>"

    def answer(self, text: str) -> str | None:
        return extract(text, self.opening, self.closing)

    def __call__(self, group: Group) -> list[float | None]:
        answers = [extract(rollout.text, self.opening, self.closing) for rollout in group.rollouts]
        voted = majority(answers)
        agrees = [answer is not None and answer == voted for answer in answers]
        if self.measure == "agreement":
            return [float(agree) for agree in agrees]
        if self.measure == "share":
            return [sum(agrees) / len(agrees)] * len(agrees)
        if group.task.answer is None:
            return [None] * len(agrees)
        label = group.task.answer.strip()
        if self.measure == "label":
            return [float(voted == label)] * len(agrees)
        return [float(agree == (answer == label)) for agree, answer in zip(agrees, answers, strict=True)]
