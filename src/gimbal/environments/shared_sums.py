"""Chain sums for two: one adds the first two terms, and another goes on from there."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractTasks, Moment
from gimbal.environments.demonstrations import training_tasks
from gimbal.environments.reasoning import ReasoningGym
from gimbal.records import Task

HANDED = "{before}{plan}{after}"  # the prompt of who goes on
WRITTEN = re.compile(r"(?s)<think>(.+)</think>\s*<answer>(.+)</answer>")
STEP = re.compile(r"(-?\d{1,9})([-+])(\d{1,9})=(-?\d{1,9})")
STAGES = ("format", "working", "answer")


@dataclass(frozen=True, kw_only=True)
class SharedSums(AbstractTasks):
    """Chain sums that can be handed over after their first two terms.

    ``columns["before"]`` is the question up to its sum and ``columns["after"]`` all behind the first two terms, so that with a number
    between them they ask for the rest. Prompt and answer are those of ``tasks``.

    Made for workflows.PlanAndExecute.
    """

    tasks: ReasoningGym = training_tasks()

    def __post_init__(self) -> None:
        if self.tasks.name != "chain_sum":
            raise ValueError(f"SharedSums hands over chain_sum, and its tasks are {self.tasks.name}")

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index]
        expression = task.columns["metadata"]["expression"]
        before, _, after = task.prompt.partition(expression)
        rest = " ".join(expression.split()[3:])
        return replace(task, columns={**task.columns, "before": before, "after": f" {rest}{after}" if rest else after})


@dataclass(frozen=True, kw_only=True)
class SumStages(AbstractEnvironmentSpec):
    """Checks what was written behind the first two terms of a shared sum, in three stages, up to the first that fails: its reward is
    the share of the stages passed, and it says which one failed.

    - format: <think>working</think> and <answer>answer</answer>, and nothing else;
    - working: a step for each further term, in order, each a true equation that begins with the result of the one before, and the
      answer is the last result;
    - answer: it is the task's.

    With what it was to begin the first step is checked by the answer alone. For tasks of SharedSums.
    """

    def open(self) -> AbstractEnvironment:
        return SumStaging()


class SumStaging(AbstractEnvironment):
    def __init__(self) -> None:
        self.task = Task(id="")

    def reset(self, task: Task, seed: int) -> None:
        if "expression" not in task.columns.get("metadata", {}) or "before" not in task.columns:
            raise ValueError(
                f"task {task.id} is no sum that is handed over, which SumStages checks; give tasks=SharedSums()"
            )
        self.task = task

    def step(self, action: str) -> Moment:
        passed = self._passed(action.strip())
        said = "" if passed == len(STAGES) else STAGES[passed]
        return Moment(observation=said, reward=passed / len(STAGES), terminated=True)

    def _passed(self, text: str) -> int:
        found = WRITTEN.fullmatch(text)
        if found is None:
            return 0
        terms, last = self.task.columns["metadata"]["expression"].split()[3:], None
        steps = [STEP.fullmatch(step) for step in found[1].split()]
        if len(steps) != len(terms) // 2:
            return 1
        for step, sign, term in zip(steps, terms[::2], terms[1::2], strict=True):
            if step is None or last not in (None, step[1]) or (step[2], step[3]) != (sign, term):
                return 1
            last = str(int(step[1]) + (int(term) if sign == "+" else -int(term)))
            if step[4] != last:
                return 1
        if last is not None and found[2].strip() != last:
            return 1
        return 2 + (found[2].strip() == self.task.answer)

    def fork(self) -> SumStaging:
        other = SumStaging()
        other.task = self.task
        return other
