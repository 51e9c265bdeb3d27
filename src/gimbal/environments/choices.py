"""Chain sums with several ways to continue, a right one and wrong ones: offline data for methods that compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Literal

from gimbal.environments.base import AbstractGenerated
from gimbal.environments.demonstrations import SLIPS, solve_chain_sum, terms, training_tasks
from gimbal.environments.reasoning import ReasoningGym
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Choices(AbstractGenerated):
    """Chain sums with one right way to continue and several wrong ones, written out: pairs for DPO.

    ``columns["completion"]`` holds ``count`` texts, the first of them correct, and ``columns["score"]`` 1 for it and 0 for the
    others.

    - ``part`` "answer": whole solutions, one soundly worked and the others not.
    - ``part`` "step": the prompt continues with right steps, a number of them drawn, and the texts are candidates for the next one,
      which is no whole answer (use Demonstrated(end=False)).

    No question of the evaluation is among them.
    """

    part: Literal["answer", "step"] = "answer"
    count: int = 2
    seed: int = 0
    size: int = 100_000

    def __post_init__(self) -> None:
        if not 2 <= self.count <= len(SLIPS) + 1:
            raise ValueError(f"Choices.count is {self.count}; one right and one to {len(SLIPS)} wrong ones are there")

    def task(self, index: int) -> Task:
        task, rng = self._source[index], Random(f"choices:{self.seed}:{index}")
        expression = task.columns["metadata"]["expression"]
        score = [1.0] + [0.0] * (self.count - 1)
        if self.part == "answer":
            texts = [solve_chain_sum(expression, "unsound" if place else "sound", rng) for place in range(self.count)]
            return replace(task, columns={**task.columns, "completion": texts, "score": score})
        before, *rest = terms(expression)
        steps, totals = [], [before]
        for term in rest:
            totals.append(totals[-1] + term)
            steps.append(f"{totals[-2]}{term:+d}=")
        done = rng.randrange(len(steps))
        prefix = "".join(f"{step}{total} " for step, total in zip(steps[:done], totals[1:], strict=False))
        slips = [0, *rng.sample(SLIPS, self.count - 1)]
        texts = [f"{steps[done]}{totals[done + 1] + slip}" for slip in slips]
        return replace(
            task,
            prompt=f"{task.prompt}<think>{prefix}",
            columns={**task.columns, "completion": texts, "score": score},
        )

    @cached_property
    def _source(self) -> ReasoningGym:
        return replace(training_tasks(size=self.size), seed=self.seed + 1)
