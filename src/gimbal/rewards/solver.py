"""Scores a text by how much it helps a solver to answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from string import ascii_uppercase
from typing import Any, ClassVar

import numpy as np

from gimbal.ops import philox
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
    """How often a solver answers correctly with the help of the text.

    score = mean over the answers y of 1[y right] + form_weight 1[y in form]. The solver is asked ``template``, filled as for
    rewards.JudgeScore, ``samples`` times; y is right if the text between ``opening`` and ``closing`` is the task's answer, in form if
    ``form`` (a regular expression) is found in it. ``solver`` None is the policy being trained. The solver sees the part of the
    completion between the two strings of ``part`` ("" and "": all of it); a completion without that part scores 0. Not applicable to
    tasks without an answer.

    With ``questions``, a column with a list of {"question": ..., "answer": ...} per task, the mean is over all of them, or over
    ``draws`` sampled ones, different for each rollout. A question with "options" asks for a letter, with the options reshuffled each
    time. ``relative`` subtracts the solver's score without the completion, leaving what the text adds.

    - DoGe (arXiv:2512.06835): a Thinker who did not see the question is paid for what it writes; ``samples`` 4.
    - CapRL (arXiv:2509.22647): captions are paid by ``draws`` = 4 questions to a reader without the image, ``samples`` 1, chosen by
      ``curated``.
    - REVISOR (arXiv:2511.13026): the chosen evidence, a ``part``, must suffice for the policy itself, ``solver`` None, ``samples`` 1.
    - AI-SearchPlanner (arXiv:2508.20368): a plan is worth what it adds for a frozen model, ``relative``.
    - a solver that does not read the completion: all rollouts of a task have the same score, so a group's advantages are 0 (up to the
      randomness of ``draws``).
    - ``relative``, and an empty completion: 0, up to chance.

    Missing answers are left out of the mean; a rollout without any has no verdict and leaves its group (see rewards.JudgeScore).

    Confidence: partial; ours: ``form_weight``, the solver's wording, and the difference as form of ``relative``.
    """

    is_method: ClassVar[bool] = True

    solver: Asked | None = Endpoint(temperature=1.0)
    template: str = TEMPLATE
    part: tuple[str, str] = ("", "")
    samples: int = 4
    questions: str = ""
    draws: int = 0
    relative: bool = False
    form: str = r"<answer>.+</answer>"
    form_weight: float = 0.0
    opening: str = "<answer>"
    closing: str = "</answer>"
    threads: int = 8
    timeout: float = 120.0
    name: str = "solver"

    def __post_init__(self) -> None:
        try:
            re.compile(self.form)
        except re.error as error:
            raise ValueError(f"SolverScore.form {self.form!r} is not a valid regular expression: {error}") from error
        if self.draws < 0 or (self.draws and (self.relative or not self.questions)):
            raise ValueError(
                f"SolverScore.draws is {self.draws}; it counts draws from a column of questions, 0 asking them all, and relative "
                "needs the same questions for all: name questions, and set relative=False"
            )
        if self.samples < 1 or self.threads < 1 or self.timeout <= 0:
            raise ValueError(
                f"SolverScore takes {self.samples} samples by {self.threads} threads in {self.timeout} seconds: 1 or more of "
                "each, and a time above 0"
            )

    def follow_ups(self, group: Group) -> list[Task]:
        if self.solver is not None:
            return []
        asked, task = chain.from_iterable(self._inquiries(group)), group.task
        return [
            Task(id=f"{task.id}:{self.name}:{n}", prompt=prompt, answer=right, source=task.source, seed=task.seed)
            for n, (prompt, right) in enumerate(asked)
        ]

    def __call__(self, group: Group) -> list[float | None]:
        inquiries = self._inquiries(group)
        if not inquiries:
            return [None] * len(group.rollouts)
        prompts = [prompt for prompt, _ in chain.from_iterable(inquiries)]
        if self.solver is None:
            replies: Sequence[Any] = group.replies.get(self.name, ())
        else:
            replies = ask(self.solver, prompts, name=self.name, threads=self.threads, timeout=self.timeout, once=False)
        left = iter(replies)
        means = [self._mean([next(left) for _ in asked], [right for _, right in asked]) for asked in inquiries]
        if not self.relative:
            return list(means)
        *with_it, without = means
        if isinstance(without, NoVerdict):
            return [without] * len(with_it)
        return [
            value if isinstance(value, NoVerdict) or not asked else value - without
            for value, asked in zip(with_it, inquiries, strict=False)
        ]

    def _inquiries(self, group: Group) -> list[list[tuple[str, str]]]:
        """(prompt, right answer) of all questions about each rollout, then without a rollout if ``relative``."""
        questions = self._questions(group.task)
        if not questions:
            return []
        rollouts = [*group.rollouts, *([None] if self.relative else [])]
        return [self._about(group, rollout, questions) for rollout in rollouts]

    def _about(
        self, group: Group, rollout: Rollout | None, questions: Sequence[Mapping[str, Any]]
    ) -> list[tuple[str, str]]:
        part = "" if rollout is None else self._part(rollout)
        if part is None:
            return []
        stream = philox(self.name, group.task.id, group.index, -1 if rollout is None else rollout.sample)
        chosen = [questions[i] for i in stream.integers(len(questions), size=self.draws)] if self.draws else questions
        asked = [_worded(question, stream) for question in chosen for _ in range(self.samples)]
        return [(fill(self.template, group.task, {"completion": part} | more), right) for more, right in asked]

    def _part(self, rollout: Rollout) -> str | None:
        opening, closing = self.part
        return extract(rollout.text, opening, closing) if opening or closing else rollout.text

    def _questions(self, task: Task) -> Sequence[Mapping[str, Any]]:
        """The questions; without ``questions``, the one in the template."""
        if self.questions:
            return task.columns.get(self.questions, ())
        return [] if task.answer is None else [{"answer": task.answer}]

    def _mean(self, replies: Sequence[Any], right: Sequence[str]) -> float:
        pairs = zip(replies, right, strict=True)
        values = [self._value(str(reply), answer) for reply, answer in pairs if not isinstance(reply, NoVerdict)]
        return sum(values) / len(values) if values else replies[0] if replies else 0.0

    def _value(self, reply: str, answer: str) -> float:
        is_right = extract(reply, self.opening, self.closing) == answer.strip()
        return is_right + self.form_weight * (re.search(self.form, reply, re.DOTALL) is not None)


def _worded(question: Mapping[str, Any], stream: np.random.Generator) -> tuple[dict[str, str], str]:
    """The template's values, and the right answer: with ``options`` its letter, in a freshly sampled order."""
    text, right = str(question.get("question", "")), str(question["answer"])
    if options := question.get("options"):
        order = [str(options[i]) for i in stream.permutation(len(options))]
        lines = [f"{letter}. {option}" for letter, option in zip(ascii_uppercase, order, strict=False)]
        text, right = "\n".join([text, *lines]), ascii_uppercase[order.index(right)]
    return ({"question": text} if text else {}), right


def curated(
    questions: Sequence[Mapping[str, Any]], seer: Callable[[str], str], blind: Callable[[str], str]
) -> list[Mapping[str, Any]]:
    """The questions that need the input: ``seer`` answers them with it, and ``blind`` cannot guess them.

    The curation of CapRL (arXiv:2509.22647); questions that can be guessed reward empty texts.
    """
    return [q for q in questions if seer(q["question"]) == q["answer"] and blind(q["question"]) != q["answer"]]
