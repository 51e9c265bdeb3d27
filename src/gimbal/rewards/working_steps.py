"""Measures of the steps of written reasoning: how many there are, how many are right, which was the last one needed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar, Literal

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward

LINES_AND_CUES = r"\n+|(?=\b(?:Wait|But|Alternatively|Hmm|Therefore)\b)"
LONGEST = 1000  # characters of a number; Python refuses to read 4,301 digits, and a model can write them
EQUATION = re.compile(r"(-?\d+)\s*([-+*])\s*(-?\d+)\s*=\s*(-?\d+)")


def step_spans(text: str, opening: str, closing: str, separator: str) -> list[tuple[int, int]]:
    """Start and end of each step of the reasoning, split at ``separator`` (a regular expression), without blank ones.

    The reasoning is between the first ``opening`` and the ``closing`` after it, or the end; without an opening there are no steps.
    """
    if (found := text.find(opening)) < 0:
        return []
    start = found + len(opening)
    closed = text.find(closing, start) if closing else -1
    end = len(text) if closed < 0 else closed
    cuts = [(match.start(), match.end()) for match in re.compile(separator).finditer(text, start, end)]
    begins, ends = [start, *(after for _, after in cuts)], [*(before for before, _ in cuts), end]
    return [(a, b) for a, b in zip(begins, ends, strict=True) if text[a:b].strip()]


@dataclass(frozen=True, kw_only=True)
class WorkingSteps(AbstractReward):
    """A measure of the reasoning steps, for methods that credit steps; with weight 0 it is only recorded.

    ``measure``:
    - "count": how many steps there are.
    - "right": how many steps come before the first error, each with equations (a + b = c in integers) that are all true and,
      if ``chained``, begins with the result of the step before.
    - "flawed": 1 unless there are steps and all are right; a guess is flawed (FAPO, arXiv:2510.22543, asks a judge).
    - "necessary": steps up to and including the first that contains the task's answer; all of them if none does (DECS,
      arXiv:2509.25827).
    """

    is_method: ClassVar[bool] = True

    measure: Literal["count", "right", "flawed", "necessary"] = "count"
    separator: str = LINES_AND_CUES
    opening: str = "<think>"
    closing: str = "</think>"
    chained: bool = False
    name: str = "steps"
    weight: float = 0.0

    def __post_init__(self) -> None:
        try:
            re.compile(self.separator)
        except re.error as error:
            raise ValueError(
                f"WorkingSteps.separator {self.separator!r} is not a valid regular expression: {error}"
            ) from error

    def __call__(self, group: Group) -> list[float | None]:
        return [self._measured(rollout.text, group.task.answer) for rollout in group.rollouts]

    def _measured(self, text: str, answer: str | None) -> float:
        steps = [text[a:b] for a, b in step_spans(text, self.opening, self.closing, self.separator)]
        match self.measure:
            case "count":
                return float(len(steps))
            case "necessary":
                return float(_first_with(steps, answer))
        right = sum(1 for _ in takewhile(bool, _verdicts(steps, chained=self.chained)))
        return float(right if self.measure == "right" else right < len(steps) or not steps)


def step_verdicts(
    text: str, opening: str, closing: str, separator: str, *, chained: bool
) -> list[tuple[tuple[int, int], bool]]:
    """Each step of the reasoning, its position, and whether it is right by itself."""
    spans = step_spans(text, opening, closing, separator)
    return list(zip(spans, _verdicts([text[a:b] for a, b in spans], chained=chained), strict=True))


def _verdicts(steps: list[str], *, chained: bool) -> list[bool]:
    results = [""] + [found[-1][3] if (found := EQUATION.findall(step)) else "" for step in steps]
    return [_right(step, before if chained else "") for step, before in zip(steps, results, strict=False)]


def _right(step: str, before: str) -> bool:
    """Whether the step holds equations, all true, the first of them beginning with ``before`` (if there is one)."""
    found = EQUATION.findall(step)
    calculate = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
    short = all(max(map(len, (a, b, c))) <= LONGEST for a, _, b, c in found)
    true = short and all(calculate[sign](int(a), int(b)) == int(c) for a, sign, b, c in found)
    return bool(found) and true and (not before or found[0][0] == before)


def _first_with(steps: list[str], answer: str | None) -> int:
    word = re.compile(rf"(?<!\w){re.escape(answer or '')}(?!\w)") if answer else None
    hits = [place for place, step in enumerate(steps, start=1) if word is not None and word.search(step)]
    return hits[0] if hits else len(steps)
