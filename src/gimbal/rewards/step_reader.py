"""A reader that cannot calculate."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gimbal.rewards.asking import AbstractJudge
from gimbal.rewards.working_steps import EQUATION

COUNT = re.compile(r"after (\d+) terms")


@dataclass(frozen=True, kw_only=True)
class StepReader(AbstractJudge):
    """Answers "the total after k terms" (environments.HiddenQuestion) with the result of the (k - 1)-th equation a + b = c below the
    question, correct or not; without one it answers that it does not know.

    A frozen solver for laptops and tests, instead of a language model behind rewards.Endpoint.
    """

    def __call__(self, question: str) -> str:
        if (asked := COUNT.search(question)) is None:
            return "I do not know."
        results = [found[3] for found in EQUATION.findall(question, asked.end())]
        place = int(asked[1]) - 2
        return f"<answer>{results[place]}</answer>" if 0 <= place < len(results) else "I do not know."
