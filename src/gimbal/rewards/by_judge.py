"""A judge's preference between two answers."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.records import Group
from gimbal.rewards.asking import fill
from gimbal.rewards.judge import JudgeScore
from gimbal.rewards.scoring import NoVerdict
from gimbal.rewards.win_rate import AbstractPreference

COMPARED = """Which of two responses answers the task better?

<task>
{prompt}
</task>
<first>
{first}
</first>
<second>
{second}
</second>

Give reasons in a few sentences. End with one line: Better: first, Better: second or Better: tie"""
WORDS = {"first": 1.0, "tie": 0.5, "second": 0.0}


@dataclass(frozen=True, kw_only=True)
class ByJudge(AbstractPreference):
    """A judge compares every pair in both orders, which cancels a bias for the first position.

    P(i beats j) is the mean of the judge's score of (i, j) and 1 - its score of (j, i), the score being 1 for {first} and 0 for
    {second}. A pair with a missing verdict is not compared; a rollout left without any comparison has no verdict and leaves its group
    (see rewards.JudgeScore). Equal texts tie without a question. n rollouts cost n (n - 1) questions.

    - a judge that always prefers the first: 1/2 everywhere.
    """

    judge: JudgeScore = JudgeScore(
        template=COMPARED, pattern=r"(?i)better\W*(first|second|tie)\b", words=WORDS, low=0.0, high=1.0
    )

    def __post_init__(self) -> None:
        if "{first}" not in self.judge.template or "{second}" not in self.judge.template:
            raise ValueError(
                "the template of ByJudge.judge needs {first} and {second}: start from rewards.by_judge.COMPARED"
            )

    def __call__(self, group: Group) -> list[list[float | None]]:
        texts = [rollout.text for rollout in group.rollouts]
        pairs = [(a, b) for a in dict.fromkeys(texts) for b in dict.fromkeys(texts) if a != b]
        questions = [fill(self.judge.template, group.task, {"first": a, "second": b}) for a, b in pairs]
        said = dict(zip(pairs, self.judge.verdicts(questions), strict=True))
        table = [[0.5 if a == b else _both(said[a, b], said[b, a]) for b in texts] for a in texts]
        return [_compared(row, place) for place, row in enumerate(table)]


def _both(forth: float | None, back: float | None) -> float | None:
    """P(the first beats the second) by both answers; a NoVerdict if one failed."""
    if forth is None or isinstance(forth, NoVerdict):
        return forth
    if back is None or isinstance(back, NoVerdict):
        return back
    return (forth + 1 - back) / 2


def _compared(row: list[float | None], place: int) -> list[float | None]:
    """The row without its failures, if anything else is left."""
    others = [p for j, p in enumerate(row) if j != place and p is not None]
    if all(isinstance(p, NoVerdict) for p in others):
        return row
    return [None if isinstance(p, NoVerdict) else p for p in row]
