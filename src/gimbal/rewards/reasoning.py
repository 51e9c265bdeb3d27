"""reasoning-gym's own scorers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gimbal.records import Group, Task
from gimbal.rewards._reasoning import make
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.isolation import worker
from gimbal.rewards.scoring import Broken
from gimbal.sandbox.worker import Worker, WorkerError

MEMORY_GB = 4.0


@dataclass(frozen=True, kw_only=True)
class ReasoningScore(AbstractReward):
    """The score_answer function of the task's reasoning-gym dataset on the extracted answer, in [0, 1]; fractions are kept.

    The answer is the text between the last ``opening`` and the ``closing`` after it; an empty ``opening`` means the start of the text,
    an empty ``closing`` its end. A completion without an answer scores 0, as does one on which the library's scorer raises, dies or
    takes longer than ``timeout`` seconds; the latter are counted (``reward/error``). Scoring runs in its own process.
    """

    name: str = "reasoning"
    opening: str = "<answer>"
    closing: str = "</answer>"
    timeout: float = 10.0

    @cached_property
    def _worker(self) -> Worker:
        return worker(self.name, make, timeout=self.timeout, memory_gb=MEMORY_GB, network=False)

    def open(self) -> ReasoningScore:
        self._worker.start()
        return self

    def close(self) -> None:
        self._worker.close()

    def accepts(self, task: Task) -> None:
        if not {"question", "metadata", "parameters"} <= set(task.columns):
            raise ValueError(
                f"the reward {type(self).__name__} scores tasks of reasoning-gym only, and task {task.id} is none: give a reward of "
                "your own, reward=file.py:function, or reward='ExactAnswer()', which compares with the column answer"
            )

    def answer(self, text: str) -> str | None:
        return extract(text, self.opening, self.closing)

    def __call__(self, group: Group) -> list[float | None]:
        task = group.task
        self.accepts(task)
        texts = [rollout.text for rollout in group.rollouts]
        try:
            return self._score(task, texts)
        except WorkerError:  # one of the texts hung or killed the scorer: score the others one by one
            return [self._score_one(task, text) for text in texts]

    def _score_one(self, task: Task, text: str) -> float | None:
        try:
            return self._score(task, [text])[0]
        except WorkerError:
            return Broken()

    def _score(self, task: Task, texts: Sequence[str]) -> list[float | None]:
        entry = {"question": task.columns["question"], "answer": task.answer, "metadata": task.columns["metadata"]}
        parameters = json.dumps(dict(task.columns["parameters"]), sort_keys=True)
        scores = self._worker(task.source, parameters, entry, texts, self.opening, self.closing)
        return [Broken() if score is None else float(score) for score in scores]
