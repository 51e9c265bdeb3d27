"""Tasks behind solved examples: prompts that hold another question and its answer first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from gimbal.environments.base import AbstractGenerated
from gimbal.environments.demonstrations import Shares, solve_chain_sum, training_tasks
from gimbal.environments.reasoning import ReasoningGym
from gimbal.records import Task, is_chat

EXAMPLES = "examples"  # column of a task: the ids of the tasks that its prompt shows solved


def exemplified(task: Task, examples: Sequence[tuple[Task, str]]) -> Task:
    """The task, behind these questions with their answers: in a chat as earlier turns behind the system's message, else as text, an
    example a paragraph."""
    shown = replace(task, columns={**task.columns, EXAMPLES: [example.id for example, _ in examples]})
    if not is_chat(task.columns.get("messages")):
        before = "".join(f"{example.prompt}{answer}\n" for example, answer in examples)
        return replace(shown, prompt=before + task.prompt)
    own = list(task.columns["messages"])
    first = int(own[0]["role"] == "system")
    turns = [
        turn
        for example, answer in examples
        for turn in (
            *(said for said in example.columns["messages"] if said["role"] != "system"),
            {"role": "assistant", "content": answer},
        )
    ]
    return replace(shown, columns={**shown.columns, "messages": [*own[:first], *turns, *own[first:]]})


@dataclass(frozen=True, kw_only=True)
class Exemplified(AbstractGenerated):
    """Chain sums with a written answer, a ``share`` of them behind a solved example in the same style: SFT that teaches a model to go
    by an example.

    The style (sound, unsound or without working) is drawn by ``shares``, as for ``Demonstrations``, once for example and answer. So an
    example tells the style, and without one the shares stay as they were. ``columns["completion"]`` is the answer.
    """

    seed: int = 0
    size: int = 100_000
    share: float = 0.7
    shares: Shares = Shares()

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.share <= 1:
            raise ValueError(
                f"Exemplified has size {self.size} (1 or more) and share {self.share} (from 0 to 1: of tasks with an example)"
            )

    def task(self, index: int) -> Task:
        rng = Random(f"exemplified:{self.seed}:{index}")
        style, other = self.shares.draw(rng), self._sums[2 * index + 1]
        task = _answered(self._sums[2 * index], style, rng)
        if rng.random() >= self.share:
            return task
        example = _answered(other, style, rng)
        return exemplified(task, [(example, example.columns["completion"])])

    @cached_property
    def _sums(self) -> ReasoningGym:
        return replace(training_tasks(size=2 * self.size), seed=self.seed + 1)


def _answered(task: Task, style: str, rng: Random) -> Task:
    completion = solve_chain_sum(task.columns["metadata"]["expression"], style, rng)
    return replace(task, columns={"completion": completion})
