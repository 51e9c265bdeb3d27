"""How similar an answer is to the right one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from gimbal.records import Group
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class Similarity(AbstractReward):
    """Partial credit by similarity, for tasks where exact matches are too rare (after the molecular similarities of SMILES-GRPO,
    arXiv:2601.17687).

    Of the extracted answer to ``task.answer``, in [0, 1] and 1 only if they are equal:
    - "tanimoto": mean over n of ``grams`` of |a & b| / |a | b|, a and b the n-grams of characters with their counts; the published
      mean over three molecular fingerprints has this form.
    - "edit": 1 - Levenshtein distance / the longer length.
    - "equal": 1 or 0.

    ``least`` is the smallest similarity that counts. No answer scores 0; not applicable to tasks without an answer.

    - "equal", or ``least`` = 1: the sparse reward of ExactAnswer.
    - nothing in common: 0.

    Near misses are rewarded although wrong, and may persist: also watch the exact share with ExactAnswer(weight=0.0).

    Confidence: partial; the mean of fingerprint similarities is published; ours: n-grams and edits instead, and ``least``.
    """

    is_method: ClassVar[bool] = True

    measure: Literal["tanimoto", "edit", "equal"] = "tanimoto"
    grams: tuple[int, ...] = (1, 2, 3)
    least: float = 0.0
    opening: str = "<answer>"
    closing: str = "</answer>"
    name: str = "similarity"

    def __post_init__(self) -> None:
        if not self.grams or min(self.grams) < 1:
            raise ValueError(f"Similarity.grams is {self.grams}; its lengths must be at least 1, as in (1, 2, 3)")
        if not 0 <= self.least <= 1:
            raise ValueError(f"Similarity.least is {self.least}; it must be in [0, 1], 0 being off")

    def __call__(self, group: Group) -> list[float | None]:
        if group.task.answer is None:
            return [None] * len(group.rollouts)
        right = group.task.answer.strip()
        return [self._score(extract(r.text, self.opening, self.closing), right) for r in group.rollouts]

    def _score(self, said: str | None, right: str) -> float:
        if said is None:
            return 0.0
        if said == right:
            return 1.0
        match self.measure:
            case "tanimoto":
                value = sum(_tanimoto(said, right, n) for n in self.grams) / len(self.grams)
            case "edit":
                value = 1 - edit_distance(said, right) / max(len(said), len(right))
            case "equal":
                value = 0.0
        # Some texts of equal n-grams differ; only equality is worth 1.
        return value if self.least <= value < 1 else 0.0 if value < self.least else 1 - 1e-6


def edit_distance(a: Sequence[object], b: Sequence[object]) -> int:
    """Levenshtein: the fewest insertions, deletions and replacements of an item that make ``b`` of ``a``."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def _tanimoto(a: str, b: str, n: int) -> float:
    left, right = (Counter(text[i : i + n] for i in range(len(text) - n + 1)) for text in (a, b))
    union = (left | right).total()
    return (left & right).total() / union if union else 0.0
