"""A context without its question: what is to be written must serve whatever is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from gimbal.environments.base import AbstractTasks
from gimbal.environments.demonstrations import terms, training_tasks
from gimbal.environments.reasoning import ReasoningGym
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class HiddenQuestion(AbstractTasks):
    """Chain sums that are shown whole; the question, in ``columns["question"]`` and not in the prompt, asks for the total after some of
    the terms.

    ``answer`` is that total. How many terms, two to all, is drawn by (``seed``, index); ``columns["questions"]`` holds all there are,
    each with its answer. Made for rewards.SolverScore.
    """

    tasks: ReasoningGym = training_tasks()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tasks.name != "chain_sum":
            raise ValueError(f"HiddenQuestion asks about chain_sum, and its tasks are {self.tasks.name}")

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index]
        totals = list(accumulate(terms(task.columns["metadata"]["expression"])))
        count = Random(f"hidden:{self.seed}:{index}").randint(2, len(totals))
        asked = [f"What is the total after {n} terms?" for n in range(2, len(totals) + 1)]
        questions = [{"question": q, "answer": str(total)} for q, total in zip(asked, totals[1:], strict=True)]
        return replace(
            task,
            answer=str(totals[count - 1]),
            columns={**task.columns, "question": asked[count - 2], "questions": questions},
        )
