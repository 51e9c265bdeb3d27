"""How far an agent follows the known solution of its task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gimbal.records import Group, Task
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class SolutionTurns(AbstractReward):
    """How many turns, from the first on, do what the task's solution does next; with weight 0 it is only recorded.

    A turn that calls begins with ``calls``, and is right if what follows is the next item of the task's column ``solution``. The last
    turn is right if all calls are, and it answers the task between ``opening`` and ``closing``. For advantages.StepBlended, which
    credits turns, in place of a process reward model that is trained on searches (ProRAG, arXiv:2601.21912).

    For tasks with one way to solve them, and policies that write calls in one way: another way to the same end counts as wrong. What
    is called and what it printed stand in one text, so that a call that goes on behind the item counts too, and ``calls`` in what is
    printed looks like a call: give it a sign that your tasks do not print.

    - the solution, then its answer: the number of turns. Another first turn: 0.
    """

    is_method: ClassVar[bool] = True

    solution: str = "programs"
    calls: str = "$"
    opening: str = "<answer>"
    closing: str = "</answer>"
    name: str = "right_turns"
    weight: float = 0.0

    def __post_init__(self) -> None:
        if not self.calls:
            raise ValueError("SolutionTurns.calls is empty; it must be what a turn that calls begins with, such as '$'")

    @property
    def decides(self) -> bool:
        return False

    def accepts(self, task: Task) -> None:
        if not task.columns.get(self.solution):
            raise ValueError(
                f"SolutionTurns compares turns with the task's column {self.solution!r}, which task {task.id} lacks: give the calls "
                "that solve it, in order, or name another column in solution"
            )
        steps = task.columns[self.solution]
        if not isinstance(steps, list | tuple) or not all(isinstance(step, str) and step.strip() for step in steps):
            raise ValueError(
                f"SolutionTurns compares turns with the task's column {self.solution!r}, which is {steps!r:.60} in task {task.id}: "
                "give it a list of texts, the calls that solve it, in order, none of them empty"
            )

    def __call__(self, group: Group) -> list[float | None]:
        return [self._right(rollout.text, group.task) for rollout in group.rollouts]

    def _right(self, text: str, task: Task) -> float:
        before, *called = text.split(self.calls)
        steps = list(task.columns[self.solution])
        if before.strip():  # it began with something else
            return 0.0
        right = 0
        while right < min(len(steps), len(called)) and called[right].startswith(steps[right]):
            right += 1
        followed = right == len(steps) == len(called)
        return float(right + (followed and extract(text, self.opening, self.closing) == (task.answer or "").strip()))
