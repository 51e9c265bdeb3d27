"""The score that a judge gives."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gimbal.records import Group
from gimbal.rewards.asking import Asked, ask, fill
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.endpoint import Endpoint
from gimbal.rewards.scoring import NoVerdict

TEMPLATE = """Rate how well the response answers the task, from 0 (useless) to 10 (perfect).

<task>
{prompt}
</task>
<response>
{completion}
</response>

Give reasons in a few sentences. End with a line of the form
Score: NUMBER"""


@dataclass(frozen=True, kw_only=True)
class JudgeScore(AbstractReward):
    """A judge's score of every rollout, mapped from ``low`` to ``high`` onto 0 to 1; the judge is a language model or any function of a
    text.

    ``judge`` is asked ``template`` with {prompt}, {completion}, {answer} and the task's columns in their places. ``pattern`` finds
    the score in what it says: the last match counts, by ``words`` (case aside) or as a number. A judge that returns a number is taken
    at its word, None does not apply. ``threads`` questions are asked at a time, equal ones once; ``timeout`` seconds are the most that
    one may take, with all its attempts.

    What has no score in the end (no answer in time, none that can be read, none on the scale) is neither 0 nor left out: the rollout
    leaves its group, counted in ``drops/rollouts/NAME_REASON``, and a group that loses all is dropped for ``NAME_REASON``. REASON is
    timeout, unreachable, busy, refused, malformed, failed, unparsable or off_scale. Nothing that a judge says is ever run.

    A policy learns to please its judge, and may learn to talk it round: keep an evaluation that no model marks.
    """

    judge: Asked = Endpoint()
    template: str = TEMPLATE
    pattern: str = r"(?i)score\W*?(-?\d+(?:\.\d+)?)"
    words: Mapping[str, float] = field(default_factory=dict, hash=False)
    low: float = 0.0
    high: float = 10.0
    threads: int = 8
    timeout: float = 120.0
    name: str = "judge"

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(
                f"JudgeScore.pattern {self.pattern!r} is not a valid regular expression: {error}"
            ) from error
        if groups != 1:
            raise ValueError(f"JudgeScore.pattern {self.pattern!r} needs one pair of brackets, around the score")
        if self.low >= self.high or self.threads < 1 or self.timeout <= 0:
            raise ValueError(
                f"JudgeScore has a scale from {self.low} to {self.high}, {self.threads} threads and {self.timeout} seconds: "
                "the scale rises, and both others are above 0"
            )

    def __call__(self, group: Group) -> list[float | None]:
        return self.verdicts(
            [fill(self.template, group.task, {"completion": rollout.text}) for rollout in group.rollouts]
        )

    def verdicts(self, questions: Sequence[str]) -> list[float | None]:
        """The score that each question is answered with; a NoVerdict where there is none."""
        return [self.read(answer) for answer in self.replies(questions)]

    def replies(self, questions: Sequence[str]) -> list[Any]:
        """What the judge says to each question, unread; a NoVerdict where it says nothing."""
        return ask(self.judge, questions, name=self.name, threads=self.threads, timeout=self.timeout)

    def read(self, answer: Any) -> float | None:
        """The score in an answer."""
        if answer is None or isinstance(answer, NoVerdict):
            return answer
        if isinstance(answer, str):
            return self._read_text(answer)
        try:
            value = float(answer)
        except (TypeError, ValueError):
            return NoVerdict(f"{self.name}_unparsable")
        return value if math.isfinite(value) else NoVerdict(f"{self.name}_unparsable")

    def _read_text(self, text: str) -> float:
        found = re.findall(self.pattern, text)
        if not found:
            return NoVerdict(f"{self.name}_unparsable")
        word = found[-1].strip()
        by_word = {key.casefold(): value for key, value in self.words.items()}
        try:
            value = by_word[word.casefold()] if word.casefold() in by_word else float(word)
        except ValueError:
            return NoVerdict(f"{self.name}_unparsable")
        if not self.low <= value <= self.high:
            return NoVerdict(f"{self.name}_off_scale")
        return (value - self.low) / (self.high - self.low)
