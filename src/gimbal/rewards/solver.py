"""What a text is worth to somebody who has to answer with its help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gimbal.records import Group, Rollout, Task
from gimbal.rewards.answers import extract
from gimbal.rewards.asking import Asked, ask, fill
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.endpoint import Endpoint
from gimbal.rewards.scoring import NoVerdict

TEMPLATE = """{question}

Notes on it, by somebody else:
{completion}

Give your final answer as <answer>ANSWER</answer>."""


@dataclass(frozen=True, kw_only=True)
class SolverScore(AbstractReward):
    """How often a frozen solver answers right with what the policy wrote (the Thinker's reward of DoGe, arXiv:2512.06835; captions of
    CapRL are paid the same way).

    score = mean over ``samples`` answers y of 1[y right] + form_weight 1[y in form]. The solver is asked ``template``, filled as for
    rewards.JudgeScore; y is right if what stands between ``opening`` and ``closing`` is the task's answer, in form if ``form`` (a
    regular expression) is found in it. With ``questions``, a column that holds a list of {"question": ..., "answer": ...} per task,
    the mean is over all of them. ``relative`` subtracts what the solver scores without the completion, asked once a task: what the
    text adds. Not applicable to tasks without an answer.

    - a solver that does not read the completion: all rollouts of a task score alike, so a group's advantages are 0.
    - ``relative``, and an empty completion: 0, but for chance.

    Answers that did not come count in no mean; a rollout with none at all has no verdict and leaves (see rewards.JudgeScore).

    Published: ``samples`` 4.

    Confidence: partial; ours: ``form_weight`` and the solver's wording.
    """

    solver: Asked = Endpoint(temperature=1.0)
    template: str = TEMPLATE
    samples: int = 4
    questions: str = ""
    relative: bool = False
    form: str = r"<answer>.+</answer>"
    form_weight: float = 0.0
    opening: str = "<answer>"
    closing: str = "</answer>"
    threads: int = 8
    timeout: float = 120.0
    name: str = "solver"
    weight: float = 1.0

    def __post_init__(self) -> None:
        try:
            re.compile(self.form)
        except re.error as error:
            raise ValueError(f"SolverScore.form {self.form!r} is no regular expression: {error}") from error
        if self.samples < 1 or self.threads < 1 or self.timeout <= 0:
            raise ValueError(
                f"SolverScore takes {self.samples} samples by {self.threads} threads in {self.timeout} seconds: 1 or more of "
                "each, and a time above 0"
            )

    def __call__(self, group: Group) -> list[float | None]:
        asked = self._questions(group.task)
        if not asked:
            return [None] * len(group.rollouts)
        rollouts = [*group.rollouts, *([None] if self.relative else [])]
        prompts = [self._prompt(group.task, rollout, question) for rollout in rollouts for question, _ in asked]
        drawn = [prompt for prompt in prompts for _ in range(self.samples)]
        replies = ask(self.solver, drawn, name=self.name, threads=self.threads, timeout=self.timeout, once=False)
        right = [answer for _, answer in asked for _ in range(self.samples)]
        means = [self._mean(replies[start : start + len(right)], right) for start in range(0, len(replies), len(right))]
        if not self.relative:
            return list(means)
        *with_it, without = means
        if isinstance(without, NoVerdict):
            return [without] * len(with_it)
        return [value if isinstance(value, NoVerdict) else value - without for value in with_it]

    def _questions(self, task: Task) -> list[tuple[str, str]]:
        """(what is asked, the right answer): "" is what the template itself asks."""
        if self.questions:
            return [(str(pair["question"]), str(pair["answer"])) for pair in task.columns.get(self.questions, ())]
        return [] if task.answer is None else [("", task.answer)]

    def _prompt(self, task: Task, rollout: Rollout | None, question: str) -> str:
        more = {"question": question} if question else {}
        return fill(self.template, task, rollout, **more, **({"completion": ""} if rollout is None else {}))

    def _mean(self, replies: Sequence[Any], right: Sequence[str]) -> float:
        pairs = zip(replies, right, strict=True)
        values = [self._value(str(reply), answer) for reply, answer in pairs if not isinstance(reply, NoVerdict)]
        return sum(values) / len(values) if values else replies[0]

    def _value(self, reply: str, answer: str) -> float:
        is_right = extract(reply, self.opening, self.closing) == answer.strip()
        return is_right + self.form_weight * (re.search(self.form, reply, re.DOTALL) is not None)
