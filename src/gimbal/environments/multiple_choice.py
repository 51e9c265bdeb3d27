"""Tasks that show some answers to choose from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from string import ascii_uppercase

from gimbal.environments.base import AbstractTasks
from gimbal.environments.demonstrations import SLIPS, training_tasks
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class MultipleChoice(AbstractTasks):
    """Tasks of another set as multiple choice.

    Every task with ``count`` options lettered from A: its answer and near misses; for integer answers.

    Columns ``options``, in the order of the prompt, and ``stem``, the prompt without them; ``template`` joins the two. The right option
    stands first in the share ``first`` of tasks, else at any other place: above 1 / count, position gives it away.
    """

    tasks: AbstractTasks = training_tasks()
    count: int = 2
    first: float = 0.6
    template: str = "{options}\n{stem}"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.count <= len(SLIPS) + 1 or not 0 <= self.first <= 1:
            raise ValueError(
                f"MultipleChoice has {self.count} options, from 2 to {len(SLIPS) + 1}, the right one first in a share of {self.first}, "
                "from 0 to 1"
            )

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        task, rng = self.tasks[index], Random(f"options:{self.seed}:{index}")
        try:
            right = int(task.answer or "")
        except ValueError as error:
            raise ValueError(
                f"task {task.id} has the answer {task.answer!r}, and MultipleChoice finds near misses of integers: bring options of "
                "your own in the column options"
            ) from error
        options = [str(right + slip) for slip in rng.sample(SLIPS, self.count - 1)]
        options.insert(0 if rng.random() < self.first else rng.randrange(1, self.count), str(right))
        lines = "\n".join(f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False))
        prompt = self.template.format(options=lines, stem=task.prompt)
        columns = {**task.columns, "options": options, "stem": task.prompt}
        return replace(task, id=f"{task.id}:choice", prompt=prompt, columns=columns)
