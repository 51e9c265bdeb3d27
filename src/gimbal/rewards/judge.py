"""A judge's score as a reward."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gimbal.records import Episode, Group, Task
from gimbal.rewards.asking import Asked, Pictured, ask, fill
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.endpoint import Endpoint
from gimbal.rewards.samples import making, pictures
from gimbal.rewards.scoring import NoVerdict

PICTURE = "{picture}"  # in a template

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

    ``judge`` receives ``template`` with {prompt}, {completion}, {answer} and the task's columns filled in. Where it has {picture}, the
    sample that the rollout made is shown there as a PNG, of a stream all of its blocks: an Endpoint sends it to a model that sees, and
    a function is given a ``Pictured``. ``pattern`` finds the score
    in its reply: the last match counts, by ``words`` (ignoring case) or as a number. A number returned by a judge is used as is; None
    means not applicable. ``threads`` questions are asked at a time, equal ones once; each may take ``timeout`` seconds, including all
    attempts.

    A missing score (no reply in time, an unreadable one, or one off the scale) is neither 0 nor ignored: the rollout leaves its group,
    counted in ``drops/rollouts/NAME_REASON``, and a group that loses all its rollouts is dropped for ``NAME_REASON``. REASON is
    timeout, unreachable, busy, refused, malformed, failed, unparsable or off_scale. A judge's output is never executed.

    A policy learns to please its judge, and may learn to manipulate it: keep an evaluation that no model scores.
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
                "low must be below high, and the others above 0"
            )

    def __call__(self, group: Group) -> list[float | None]:
        return self.verdicts([self.question(group.task, episode) for episode in group.episodes])

    def question(self, task: Task, episode: Episode) -> str | Pictured:
        """What the judge is asked about an episode."""
        # The parts around pictures are filled in apart, so that no text of the policy's can stand for one.
        texts = [fill(part, task, {"completion": episode.last.text}) for part in self.template.split(PICTURE)]
        return texts[0] if len(texts) == 1 else Pictured(texts=tuple(texts), pictures=tuple(pictures(making(episode))))

    def verdicts(self, questions: Sequence[str | Pictured]) -> list[float | None]:
        """The score for each question; a NoVerdict where there is none."""
        return [self.read(answer) for answer in self.replies(questions)]

    def replies(self, questions: Sequence[str | Pictured]) -> list[Any]:
        """The judge's raw reply to each question; a NoVerdict where there is none."""
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
