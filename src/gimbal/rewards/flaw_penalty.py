"""A penalty on right answers reached by flawed reasoning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.working_steps import WorkingSteps


@dataclass(frozen=True, kw_only=True)
class FlawPenalty(AbstractReward):
    """Reduces the reward of correct answers with flawed reasoning: still useful while sound answers are rare, and penalised once they
    are not (FAPO, arXiv:2510.22543).

    The verdict of ``judge`` (1 is flawed) where ``outcome`` reaches ``threshold``, else 0; the judge is asked only about those. It is
    added to the outcome with a negative ``weight``. With shares a of sound, f of flawed and w of wrong rollouts in a group, an outcome
    of 1 or -1 and weight -k, the centred advantage of a flawed one is (1 - k) - (a + (1 - k) f - w): for k = 1 it is w - a.

    - ``weight`` = 0, or nothing flawed: the outcome.
    - ``weight`` = -2 with an outcome of 1 or -1: a flawed answer counts as a wrong one.

    Published: an outcome of 1 or -1 with weight -1; for 1 or 0, weigh the outcome 2. The published judge is a generative model, ours by
    default checks sums.

    Confidence: verified.
    """

    is_method: ClassVar[bool] = True

    outcome: AbstractReward = ExactAnswer()
    judge: AbstractReward = WorkingSteps(measure="flawed")
    threshold: float = 1.0
    name: str = "flawed"
    weight: float = -1.0

    def __post_init__(self) -> None:
        if self.weight > 0:
            raise ValueError(
                f"FlawPenalty.weight is {self.weight}; it must be 0 or below, as a positive weight would reward flaws"
            )

    def open(self) -> FlawPenalty:
        return replace(self, outcome=self.outcome.open(), judge=self.judge.open())

    def close(self) -> None:
        self.outcome.close()
        self.judge.close()

    def __call__(self, group: Group) -> list[float | None]:
        earned = self.outcome(group)
        right = [place for place, value in enumerate(earned) if value is not None and value >= self.threshold]
        verdicts: list[float | None] = [None if value is None else 0.0 for value in earned]
        if right:
            asked = replace(group, episodes=tuple(group.episodes[place] for place in right))
            for place, flaw in zip(right, self.judge(asked), strict=True):
                verdicts[place] = flaw
        return verdicts
