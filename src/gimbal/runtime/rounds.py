"""What a curriculum and a budget say of a round of tasks, checked; and a first round without a run."""

from __future__ import annotations

from collections.abc import Sequence

from gimbal.config import paths
from gimbal.config.own import OwnError, fault, wrong
from gimbal.dataflow.base import AbstractBudget, AbstractCurriculum, Plan, Progress
from gimbal.dataflow.replay.base import AbstractStore
from gimbal.records import Task
from gimbal.runtime.run import AbstractRun


def chosen(curriculum: AbstractCurriculum) -> Task:
    """The next task."""
    task = curriculum.next()
    if not isinstance(task, Task):
        raise wrong(curriculum, "next", task, "a Task(id=..., prompt=...)")
    return task


def planned(budget: AbstractBudget, tasks: Sequence[Task]) -> Sequence[Plan]:
    """The initial rollouts of each task of a round."""
    plans = budget.plan(tasks)
    if not isinstance(plans, list | tuple) or [type(plan) for plan in plans] != [Plan] * len(tasks):
        raise wrong(budget, "plan", plans, f"a list of {len(tasks)} Plan(rollouts=..., max_length=...)")
    return plans


def started(run: AbstractRun) -> tuple[AbstractCurriculum, AbstractBudget, AbstractStore]:
    """The live halves of its curriculum, budget and store."""
    curriculum, budget = (
        run.curriculum.start(run.tasks, run.seed),
        run.budget.start(run.num_generations, run.sampling.max_length),
    )
    store = run.store.start(run.seed)
    live = (
        (run.curriculum, curriculum, AbstractCurriculum),
        (run.budget, budget, AbstractBudget),
        (run.store, store, AbstractStore),
    )
    for spec, found, kind in live:
        if not isinstance(found, kind):
            raise wrong(spec, "start", found, f"an {kind.__name__}")
    return curriculum, budget, store


def rehearse(run: AbstractRun) -> None:
    """Start them and ask for a first round: what they refuse only then is refused without a model too."""
    try:
        curriculum, budget, _ = started(run)
        for part in (curriculum, budget):
            part.step(Progress(version=0, drawn=0))
        planned(budget, [chosen(curriculum) for _ in range(run.prompts_per_step)])
    except Exception as error:  # whatever a user's part raises
        if told := fault(error, {type(part).__name__: key for key, part in paths(run).items()}):
            raise OwnError(told) from error
        raise
