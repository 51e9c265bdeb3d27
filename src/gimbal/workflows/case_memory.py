"""A memory of past cases: an attempt reads those that are worth most to it, and adds its own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gimbal.composition import Composition, Verdict
from gimbal.ops import philox
from gimbal.records import Episode, Group, Rollout, Task, is_chat
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.base import AbstractWorkflow, Attempt, Encode, Steps
from gimbal.workflows.over_rows import goes_by
from gimbal.workflows.retrieval import AbstractRetrieval, Case, LearnedRetrieval


@dataclass(frozen=True, kw_only=True)
class CaseMemory(AbstractWorkflow):
    """Puts the ``read`` best cases of earlier attempts before the prompt, and stores the attempt as one (AgentFly, arXiv:2508.16153).

    pi(y | s, M) = sum_c mu(c | s, M) pi(y | s, c),  mu(c | s, M) = exp(Q(s, c) / T) / sum_c' exp(Q(s, c') / T)

    Q is the value that ``retrieval`` gives a case; ``read`` cases are drawn from mu without replacement, the best one last. T is
    ``temperature``; at 0 the best ones are read, the newest of equals. A case reads as ``template``, which has {prompt}, {answer} and,
    if wanted, {score}; in a chat it stands in the first message. The worst cases are left out where the model's context has no room
    for all of them, beside the prompt and an answer of full length. ``reward`` scores an attempt; failures are stored too. The
    ``capacity`` newest cases are kept, and an attempt does not read cases of its own task. It reads the memory of when it began;
    ``at_once`` says how many attempts run at a time.

    The policy may be trained on what it reads, or left as it is: `gimbal eval` with this workflow learns cases and Q alone, from an
    empty memory. Each sampler process has its own memory, which is saved with the run.

    - an empty memory, or ``read`` = 0: SingleTurn.
    - ``temperature`` = infinity: uniform retrieval.

    Published: 4 cases, the best by Q. Confidence: verified (read, write and learn after each attempt); ours: the temperature, the bound
    and the template.
    """

    retrieval: AbstractRetrieval = LearnedRetrieval()
    read: int = 4
    capacity: int = 256
    temperature: float = 0.0
    template: str = "{prompt}{answer}\n"
    reward: AbstractReward = ExactAnswer()
    at_once: int | None = None

    def __post_init__(self) -> None:
        if self.at_once is not None and self.at_once < 1:
            raise ValueError(f"CaseMemory.at_once is {self.at_once}; it must be 1 or more, or none for no limit")
        if self.read < 0 or self.capacity < 1 or not self.temperature >= 0:
            raise ValueError(
                f"CaseMemory has read={self.read}, capacity={self.capacity} and temperature={self.temperature}: a capacity of 1 or "
                "more, the others 0 or above"
            )
        if "{answer}" not in self.template:
            raise ValueError(
                f"CaseMemory.template is {self.template!r}; it must have {{answer}}, and usually {{prompt}}"
            )

    def accepts(self, task: Task) -> None:
        self.reward.accepts(task)
        messages: Any = task.columns.get("messages")
        if "prompt_ids" in task.columns or (is_chat(messages) and not isinstance(messages[0]["content"], str)):
            raise ValueError(
                f"task {task.id} is asked in tokens or with images, and CaseMemory puts text before a prompt: use text or a chat"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from goes_by(self.reward, "CaseMemory", whole)

    def __call__(self, attempt: Attempt) -> Steps:
        if attempt.fork is None:
            attempt = replace(attempt, task=self.shown(attempt.task, (yield from self.fitting(attempt))))
        return Episode.of((yield attempt.begin()))

    def fitting(self, attempt: Attempt) -> Steps:
        """Those of the chosen cases that there is room for."""
        cases = self.chosen(attempt)
        while cases and (yield Encode(task=self.shown(attempt.task, cases))).room < attempt.sampling.max_length:
            cases = cases[1:]
        return cases

    def chosen(self, attempt: Attempt) -> list[Case]:
        """The cases that this attempt reads, the best one last."""
        cases = [case for each in attempt.memory["cases"] if (case := Case(*each)).task != attempt.task.id]
        value_C = np.array(self.retrieval.values(attempt.memory["weights"], attempt.task.asked, cases))
        if self.temperature > 0:
            draws = philox("cases", attempt.seed, attempt.task.id, attempt.sample).gumbel(size=len(cases))
            value_C = (0.0 if math.isinf(self.temperature) else value_C / self.temperature) + draws
        order = np.argsort(value_C, kind="stable")
        return [cases[at] for at in order[len(cases) - min(self.read, len(cases)) :]]

    def shown(self, task: Task, cases: Sequence[Case]) -> Task:
        if not cases:
            return task
        text = "".join(map(self._told, cases))
        messages: Any = task.columns.get("messages")
        if not is_chat(messages):
            return replace(task, prompt=text + task.prompt)
        first = {**messages[0], "content": f"{text}{messages[0]['content']}"}
        return replace(task, columns={**task.columns, "messages": [first, *messages[1:]]})

    def _read(self, attempt: Attempt, row: Rollout) -> list[Case]:
        """The cases that stand before the prompt of this row."""
        cases = self.chosen(attempt)
        return next((cases[at:] for at in range(len(cases)) if self.shown(attempt.task, cases[at:]) == row.task), [])

    def _told(self, case: Case) -> str:
        words = {"{prompt}": case.asked, "{answer}": case.answer, "{score}": f"{case.score:g}"}
        return re.sub(r"\{(?:prompt|answer|score)\}", lambda found: words[found[0]], self.template)

    def begin(self) -> Mapping[str, Any]:
        return {"cases": (), "weights": ()}

    def remember(self, memory: Mapping[str, Any], attempt: Attempt, rows: Sequence[Rollout]) -> Mapping[str, Any]:
        """With these attempts as cases; Q learns from what each of them read."""
        cases, weights = memory["cases"], memory["weights"]
        for row, score in zip(
            rows, self.reward(Group.of(attempt.group, attempt.task, rows)) if rows else (), strict=True
        ):
            if score is None or not math.isfinite(score):  # no verdict, no lesson
                continue
            weights = self.retrieval.learned(
                weights, attempt.task.asked, self._read(attempt.of(row.sample), row), score
            )
            answer = self.reward.answer(row.text)
            case = Case(attempt.task.id, attempt.task.asked, row.text if answer is None else answer, float(score))
            cases = (*cases, tuple(case))  # plain values are saved
        return {"cases": cases[-self.capacity :], "weights": weights}
