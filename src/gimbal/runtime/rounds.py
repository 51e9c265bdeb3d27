"""What a curriculum and a budget answer, checked: they may be a user's own, and a wrong answer would look like our bug or never end."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from gimbal.config.own import wrong
from gimbal.dataflow.base import AbstractBudget, AbstractCurriculum, Begun, Plan
from gimbal.records import Task

MOST_GROWTH = 1_000  # times in a row that a budget may ask for more rollouts of a group


def chosen(curriculum: AbstractCurriculum) -> Task:
    """The next task."""
    task = curriculum.next()
    if not isinstance(task, Task):
        raise wrong(curriculum, "next", task, "a Task(id=..., prompt=...), from gimbal.records")
    return task


def plans(budget: AbstractBudget, tasks: Sequence[Task]) -> Sequence[Plan]:
    """The first rollouts of each task."""
    found = budget.plan(tasks)
    wanted = f"a list of {len(tasks)} Plan(rollouts=..., max_length=...), numbers of 1 or above (from gimbal.dataflow.base import Plan)"
    if not isinstance(found, list | tuple) or len(found) != len(tasks):
        raise wrong(budget, "plan", found, wanted)
    if bad := [plan for plan in found if not _usable(plan)]:
        raise wrong(budget, "plan", bad[:1], wanted)
    return found


def further(budget: AbstractBudget, begun: Sequence[Begun], growths: Sequence[int]) -> Sequence[int]:
    """How many more of each of these groups; ``growths``: how often each has been given more."""
    more = budget.more(begun)
    if not isinstance(more, list | tuple) or len(more) != len(begun) or not all(_counts(n, 0) for n in more):
        raise wrong(budget, "more", more, f"a list of {len(begun)} numbers of rollouts, 0 or above")
    for one, count, grown in zip(begun, more, growths, strict=True):
        if count and grown >= MOST_GROWTH:
            ended = f"0 for a group at some time; it has asked {MOST_GROWTH:,} times in a row for more of task {one.group.task.id}"
            raise wrong(budget, "more", more, ended)
    return more


def _counts(value: object, least: int) -> bool:
    return isinstance(value, Integral) and int(value) >= least


def _usable(plan: object) -> bool:
    return type(plan) is Plan and _counts(plan.rollouts, 1) and _counts(plan.max_length, 1)
