"""Which past cases are worth reading for a task: by the cosine of texts, or by what is learned of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from gimbal.composition import AbstractPart

Weights = tuple[float, ...]  # of a retrieval; none before it has learned


class Case(NamedTuple):
    """A past attempt: the task, its prompt, what was answered, and the score of that."""

    task: str
    asked: str
    answer: str
    score: float


class AbstractRetrieval(AbstractPart, ABC):
    """Values cases for a task. Its weights are plain numbers, which the workflow keeps."""

    @abstractmethod
    def values(self, weights: Weights, asked: str, cases: Sequence[Case]) -> list[float]:
        """The value of each case for this prompt; more is better."""

    def learned(self, weights: Weights, asked: str, cases: Sequence[Case], score: float) -> Weights:
        """The weights after these cases were read for this prompt, and the attempt had this score."""
        return weights


@dataclass(frozen=True, kw_only=True)
class CosineRetrieval(AbstractRetrieval):
    """The cosine of the counts of letters and pairs of letters in both prompts; nothing is learned."""

    def values(self, weights: Weights, asked: str, cases: Sequence[Case]) -> list[float]:
        return [cosine(asked, case.asked) for case in cases]


@dataclass(frozen=True, kw_only=True)
class SuccessesFirst(AbstractRetrieval):
    """The cosine of CosineRetrieval, plus 1 for a case that was a success (a score of 0.5 or more): failures are read only where
    successes are too few. Nothing is learned."""

    def values(self, weights: Weights, asked: str, cases: Sequence[Case]) -> list[float]:
        return [cosine(asked, case.asked) + (case.score >= 0.5) for case in cases]


@dataclass(frozen=True, kw_only=True)
class LearnedRetrieval(AbstractRetrieval):
    """A learned value of reading case c for task s: the probability of success (AgentFly, arXiv:2508.16153).

    Q(s, c) = sigmoid(w_o . x(s, c)),  x = (1, cosine(s, c), same_1, ..., same_P)

    w_o <- w_o + ``rate`` (r - Q(s, c)) x for each case that was read, where r is the score of the attempt (clipped to [0, 1]): one step
    on the cross-entropy. same_p is 1 if both prompts have the same letter at place p from their end, up to ``places``; o says whether
    the case itself was a success (a score of 0.5 or more), and each of the two has weights of its own. The first weights are those of
    the cosine.

    Only what is read is learned from. At a rate that is too high a few early failures make Q avoid the cases that would have helped.

    - ``rate`` = 0: CosineRetrieval.

    Published: a classifier on a text encoder, in batches; ours: the linear Q, its features and one step an attempt. Confidence:
    verified (loss, what is read and written).
    """

    rate: float = 0.03
    places: int = 8

    def __post_init__(self) -> None:
        if not 0 <= self.rate < math.inf or self.places < 0:
            raise ValueError(
                f"LearnedRetrieval has rate {self.rate} and places {self.places}: a finite rate and a number of places, 0 or above"
            )

    def values(self, weights: Weights, asked: str, cases: Sequence[Case]) -> list[float]:
        weights = weights or self._first()
        return [_sigmoid(sum(weights[at] * x for at, x in self._features(asked, case))) for case in cases]

    def learned(self, weights: Weights, asked: str, cases: Sequence[Case], score: float) -> Weights:
        now, right = list(weights or self._first()), min(1.0, max(0.0, score))
        for case, value in zip(cases, self.values(weights, asked, cases), strict=True):
            for at, x in self._features(asked, case):
                now[at] += self.rate * (right - value) * x
        return tuple(now)

    def _first(self) -> Weights:
        each = (0.0, 1.0, *(0.0 for _ in range(self.places)))
        return each + each

    def _features(self, asked: str, case: Case) -> list[tuple[int, float]]:
        """(Place, value) of those that are not 0."""
        first = (2 + self.places) * (case.score >= 0.5)
        pairs = zip(reversed(asked[-self.places :]), reversed(case.asked[-self.places :]), strict=False)
        same = [(first + 2 + place, 1.0) for place, (one, other) in enumerate(pairs) if self.places and one == other]
        return [(first, 1.0), (first + 1, cosine(asked, case.asked)), *same]


def cosine(one: str, other: str) -> float:
    """Of the counts of letters and pairs of letters; 0 for an empty text."""
    mine, theirs = _counts(one), _counts(other)
    shared = sum(count * theirs[what] for what, count in mine.items() if what in theirs)
    size = math.sqrt(sum(count**2 for count in mine.values()) * sum(count**2 for count in theirs.values()))
    return shared / size if size else 0.0


@lru_cache(maxsize=4096)
def _counts(text: str) -> Counter[str]:
    return Counter(text) + Counter(map("".join, pairwise(text)))


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
