"""Worked sums to be judged: right, or wrong in some of the steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from gimbal.environments.base import AbstractTasks
from gimbal.environments.demonstrations import SLIPS, terms, training_tasks
from gimbal.environments.reasoning import ReasoningGym
from gimbal.records import Task

LONG: Mapping[str, int] = {"min_terms": 4, "max_terms": 7, "min_digits": 2, "max_digits": 2}


@dataclass(frozen=True, kw_only=True)
class Proofreading(AbstractTasks):
    """Chain sums to proofread.

    The prompt is a chain sum with every step written out; the answer is "right", or the first and the last wrong step, such as
    "2-3".

    Each sum comes sound and flawed, next to one another and with its number in ``columns["pair"]``; ``columns["sound"]`` is 1 or 0 and
    ``columns["span"]`` the wrong steps, from 1, or None. With ``copies`` the flawed one follows once more: ``columns["stream"]`` is
    "verdict" for the two and "place" for the copy, so that each of two objectives has data of its own (OmniVerifier-M1,
    arXiv:2605.28805).

    ``columns["completion"]`` marks every step by + or - in a thought and answers by that; a mark is false with probability ``noise``,
    and the thought is left out with probability ``hidden`` (random masking of DeScore, arXiv:2605.05922).
    """

    copies: bool = False
    noise: float = 0.1
    hidden: float = 0.0
    seed: int = 0
    size: int = 50_000  # sums
    parameters: Mapping[str, Any] = field(default_factory=lambda: dict(LONG), hash=False)

    def __post_init__(self) -> None:
        if not (0 <= self.noise <= 1 and 0 <= self.hidden <= 1):
            raise ValueError(f"Proofreading.noise {self.noise} and hidden {self.hidden} are probabilities, in [0, 1]")

    def __len__(self) -> int:
        return self.size * self._times

    def __getitem__(self, index: int) -> Task:
        number, version = divmod(index, self._times)
        task, rng = self._source[number], Random(f"proofreading:{self.seed}:{number}")
        first, *rest = terms(task.columns["metadata"]["expression"])
        begin = rng.randint(1, len(rest))
        span = (begin, rng.randint(begin, len(rest))) if version else None
        total, steps = first, []
        for place, term in enumerate(rest, start=1):
            before = total
            total += term + (rng.choice(SLIPS) if span and span[0] <= place <= span[1] else 0)
            steps.append(f"{before}{term:+d}={total}")
        stream: Literal["verdict", "place"] = "place" if version == 2 else "verdict"
        columns: dict[str, Any] = {"pair": number, "sound": int(span is None), "span": span, "stream": stream}
        columns["completion"] = self._completion(span, len(steps), rng)
        return replace(
            task,
            id=f"{task.id}:proof:{version}",
            prompt=f"{task.columns['metadata']['expression']} =\n{' '.join(steps)}\n",
            answer=_answer(span),
            columns={**task.columns, **columns},
        )

    def _completion(self, span: tuple[int, int] | None, steps: int, rng: Random) -> str:
        wrong = [span is not None and span[0] <= n <= span[1] for n in range(1, steps + 1)]
        seen = [mark != (rng.random() < self.noise) for mark in wrong]
        found = [place for place, mark in enumerate(seen, start=1) if mark]
        thought = "" if rng.random() < self.hidden else "<think>" + "".join("+-"[mark] for mark in seen) + "</think>"
        return f"{thought}<answer>{_answer((found[0], found[-1]) if found else None)}</answer>"

    @property
    def _times(self) -> int:
        return 3 if self.copies else 2

    @property
    def _source(self) -> ReasoningGym:
        return replace(training_tasks(size=self.size), parameters=self.parameters, exclude=None)


def _answer(span: tuple[int, int] | None) -> str:
    return "right" if span is None else f"{span[0]}-{span[1]}"
