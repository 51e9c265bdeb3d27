"""A judge that only compares equations."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.rewards.asking import AbstractJudge
from gimbal.rewards.working_steps import EQUATION


@dataclass(frozen=True, kw_only=True)
class EvidenceCount(AbstractJudge):
    """The number of equations a + b = c of the evidence that the decision repeats, minus those that it repeats with another result.

    It reads the text after <evidence> and <decision> in the question (rewards.debate.JUDGED). For laptops and tests, instead of a
    language model behind rewards.Endpoint.
    """

    def __call__(self, question: str) -> float:
        evidence = _equations(question, "evidence")
        decided = _equations(question, "decision")
        return float(
            sum((decided[left] == c) - (decided[left] != c) for left, c in evidence.items() if left in decided)
        )


def _equations(question: str, part: str) -> dict[tuple[str, str, str], str]:
    text = question.partition(f"<{part}>\n")[2].partition(f"\n</{part}>")[0]
    return {(a, sign, b): c for a, sign, b, c in EQUATION.findall(text)}
