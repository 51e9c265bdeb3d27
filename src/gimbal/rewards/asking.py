"""Questions to judges: asked concurrently, within a time limit, and without ending a run on failure."""

from __future__ import annotations

import math
import re
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from gimbal.composition import AbstractPart
from gimbal.records import Task
from gimbal.rewards.scoring import NoVerdict

PLACE = re.compile(r"\{(\w+)\}")


class JudgeError(Exception):
    """A question without an answer; ``reason`` is the word under which it is counted."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Pictured:
    """A question that shows pictures: data: URLs of PNGs, all of them between any two of its ``texts``."""

    texts: tuple[str, ...]
    pictures: tuple[str, ...]

    @property
    def content(self) -> list[dict[str, Any]]:
        """As the content of a message in OpenAI's API."""
        shown = [{"type": "image_url", "image_url": {"url": picture}} for picture in self.pictures]
        said = [[{"type": "text", "text": text}] if text else [] for text in self.texts]
        return said[0] + [part for own in said[1:] for part in (*shown, *own)]


class AbstractJudge(AbstractPart, ABC):
    """A question -> an answer (text, or a number). Called from several threads; raises JudgeError if there is none."""

    @abstractmethod
    def __call__(self, question: str | Pictured) -> Any: ...


Asked = AbstractJudge | Callable[[Any], Any]


def ask(
    judge: Asked,
    questions: Sequence[str | Pictured],
    *,
    name: str = "judge",
    threads: int = 8,
    timeout: float = 120.0,
    once: bool = True,
) -> list[Any]:
    """The judge's answer to each question, in order; a NoVerdict where there is none.

    ``threads`` questions run at a time; equal ones are asked ``once``, or separately. In total they have ``timeout`` seconds per round
    of ``threads``; unanswered questions are then cancelled.
    """
    waiting: SimpleQueue[int] = SimpleQueue()
    answers: dict[int, Any] = {}
    first: dict[str | Pictured, int] = {}  # where each question is asked first
    places = [first.setdefault(question, place) if once else place for place, question in enumerate(questions)]
    unique = sorted(set(places))
    for place in unique:
        waiting.put(place)

    def work() -> None:
        while True:
            try:
                place = waiting.get_nowait()
            except Empty:
                return
            answers[place] = _answer(judge, questions[place], name)

    count = min(threads, len(unique))
    workers = [Thread(target=work, name=f"{name} {i}", daemon=True) for i in range(count)]
    end = time.monotonic() + timeout * math.ceil(len(unique) / threads)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, end - time.monotonic()))
    while not waiting.empty():  # those given up are not to be asked after all
        try:
            waiting.get_nowait()
        except Empty:
            break
    found = dict(answers)
    return [found[place] if place in found else NoVerdict(f"{name}_timeout") for place in places]


def _answer(judge: Asked, question: str | Pictured, name: str) -> Any:
    try:
        return judge(question)
    except JudgeError as error:
        reason, detail = error.reason, str(error)
    except Exception as error:  # whatever a user's function raises
        reason, detail = "failed", f"{type(error).__name__}: {error}"
    warnings.warn(f"{name} gave no verdict ({reason}): {detail}", RuntimeWarning, stacklevel=2)
    return NoVerdict(f"{name}_{reason}")


def fill(template: str, task: Task, more: Mapping[str, str] | None = None) -> str:
    """The template with {prompt}, {answer}, columns of the task and ``more``, such as {completion}, in their places.

    Inserted text is not expanded again, even if a completion contains braces. ``more`` overrides the task.
    """
    values: dict[str, Any] = {**task.columns, "prompt": task.asked}
    if task.answer is not None:
        values["answer"] = task.answer
    values |= more or {}

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ValueError(
                f"a template reads {match[0]}, which task {task.id} lacks; it has {', '.join(sorted(values))}"
            )
        return str(values[match[1]])

    return PLACE.sub(value, template)


def asked_by(template: str, task: Task, more: Mapping[str, str] | None = None) -> Task:
    """The task with the filled template as its prompt: a chat of one message where the task is a chat."""
    text = fill(template, task, more)
    if "messages" not in task.columns:
        return replace(task, prompt=text)
    return replace(task, prompt="", columns={**task.columns, "messages": [{"role": "user", "content": text}]})
