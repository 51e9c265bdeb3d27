"""Sums whose result is one digit, so that it can be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gimbal.environments.base import AbstractGenerated
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class DigitSums(AbstractGenerated):
    """Chain sums of ``terms`` numbers of two digits, whose result is a digit: the class (column ``label``) that a picture must show.

    ``prompt`` is the question, with {sum} for the sum. Results are drawn evenly from 0 to 9. ``seed`` tells the tasks of a training
    set from those of an evaluation.

    Made for workflows.PlanAndDraw.
    """

    terms: int = 3
    prompt: str = "State the final answer to the following arithmetic problem: {sum} =\n"
    size: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.terms <= 6:
            raise ValueError(f"DigitSums.terms is {self.terms}; it must be from 2 to 6")
        if "{sum}" not in self.prompt:
            raise ValueError(f"DigitSums.prompt is {self.prompt!r}; it must have a place for the sum, {{sum}}")
        if self.size < 1:
            raise ValueError(f"DigitSums.size is {self.size}; it must be at least 1")

    def task(self, index: int) -> Task:
        rng = Random(f"{self.seed}:{index}")
        label = rng.randrange(10)
        while True:
            first, *rest = (rng.randint(10, 99) for _ in range(self.terms - 1))
            signs = [rng.choice((1, -1)) for _ in rest]
            missing = label - first - sum(sign * term for sign, term in zip(signs, rest, strict=True))
            if 10 <= abs(missing) <= 99:
                break
        signed = [*(sign * term for sign, term in zip(signs, rest, strict=True)), missing]
        written = str(first) + "".join(f" {'+' if term > 0 else '-'} {abs(term)}" for term in signed)
        return Task(
            id=f"digit-sum-{self.seed}-{index}",
            prompt=self.prompt.replace("{sum}", written),
            answer=str(label),
            source="digit_sums",
            columns={"label": label},
        )
