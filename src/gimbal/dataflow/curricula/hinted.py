"""Repeats unsolved tasks with the beginning of their solution."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gimbal.composition import SUPERSEDES, Advice, Composition, Verdict
from gimbal.config.own import started
from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumAround, AbstractCurriculumSpec
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.environments.base import AbstractTasks
from gimbal.records import Group, Task

HINT, RETRY, PLAIN = "hint", "retry", "unhinted"
TEMPLATE = """{prompt}

To help you, this is how a correct solution begins; go on from there:
{hint}"""


def comes_again(group: Group) -> bool:
    """Whether its task is repeated with a longer hint: there is one, and no rollout solved it."""
    if RETRY not in group.task.columns:
        return False
    name, threshold = group.task.columns[RETRY]
    return all((r.scores[name] if name else r.earned) < threshold for r in group.episodes)


@dataclass(frozen=True, kw_only=True)
class Hinted(AbstractCurriculumSpec):
    """Repeats a task that a whole group failed with part of its reference solution in the prompt, then with a larger part (GHPO,
    arXiv:2507.10628).

    Tasks come in the order of ``order``. A group fails if no rollout reaches ``threshold`` in the reward ``right`` (the whole score if
    it is empty). Its task then comes next, its prompt being ``template`` with {prompt} and, as {hint}, the first stages[0] share of the
    characters of the column ``column``; if that group fails too, stages[1], and so on; the last result stands. Rollouts are sampled and
    trained with the hint as context. filters.Superseded drops the groups that failed on the way; ``hint``, the share, is a column that
    rewards.Expected(column="hint", name="hint", weight=0.0) makes a metric of. The first ``begin`` tasks get no hints.

    - ``stages`` = (), or tasks without a solution: ``order``.
    - a stage of 1: the prompt has the whole solution, which is close to imitation.

    Behaviour learned with hints must transfer to prompts without them: evaluations use no hints. A hard task costs up to
    1 + len(stages) groups.

    Published: stages .25, .5, .75. The hint's wording is ours.

    Confidence: verified.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("right",)

    order: AbstractCurriculumSpec = Epochs()
    stages: tuple[float, ...] = (0.25, 0.5, 0.75)
    right: str = ""
    threshold: float = 1.0
    column: str = "solution"
    template: str = TEMPLATE
    begin: int = 0

    def __post_init__(self) -> None:
        if any(not 0 < share <= 1 for share in self.stages) or sorted(set(self.stages)) != list(self.stages):
            raise ValueError(
                f"Hinted.stages are {self.stages}; they must be rising shares of a solution, above 0 and up to 1"
            )
        if "{hint}" not in self.template or "{prompt}" not in self.template:
            raise ValueError("Hinted.template needs {prompt} and {hint}")

    def start(self, tasks: AbstractTasks, seed: int) -> HintedCurriculum:
        return HintedCurriculum(self, started(self.order, AbstractCurriculum, tasks, seed))

    def columns(self) -> frozenset[str]:
        return frozenset({self.column} if self.stages else ())

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(SUPERSEDES):
            yield Advice(
                "Hinted repeats failed tasks, but their failed groups still fill batches: put Superseded() first in filters"
            )


class HintedCurriculum(AbstractCurriculumAround):
    """The live half of ``Hinted``."""

    def __init__(self, spec: Hinted, order: AbstractCurriculum) -> None:
        self.spec, self.order = spec, order
        self.waiting: deque[Task] = deque()  # tasks to ask again, the hint already in them
        self.begun = 0

    def next(self) -> Task:
        if self.waiting:
            return self.waiting.popleft()
        task = self.order.next()
        self.begun += 1
        hints = self.begun > self.spec.begin and task.columns.get(self.spec.column)
        return self._asked(task, 0, retry=bool(hints) and bool(self.spec.stages))

    def observe(self, group: Group) -> None:
        stage = group.task.columns.get(PLAIN, (None, 0))[1]
        if stage == 0:
            self.order.observe(group)  # what it learns of a task is about the bare task
        if comes_again(group):
            plain = group.task.columns[PLAIN][0] if stage else group.task
            self.waiting.append(self._asked(plain, stage + 1, retry=stage + 1 < len(self.spec.stages)))

    def _asked(self, plain: Task, stage: int, *, retry: bool) -> Task:
        """The task with the hint of this stage (0: none), and what says whether it may come again."""
        columns = {key: value for key, value in plain.columns.items() if key != RETRY}
        columns[HINT] = self.spec.stages[stage - 1] if stage else 0.0
        if retry:
            columns[RETRY] = (self.spec.right, self.spec.threshold)
        if not stage:
            return replace(plain, columns=columns)
        columns[PLAIN] = (plain, stage)
        solution = str(plain.columns[self.spec.column])
        hint = solution[: round(columns[HINT] * len(solution))]
        asked = replace(plain, id=f"{plain.id}#{stage}", columns=columns)
        if (messages := plain.columns.get("messages")) is None:
            return replace(asked, prompt=self._filled(plain.prompt, hint))
        *before, last = messages
        columns["messages"] = [*before, {**last, "content": self._filled(last["content"], hint)}]
        return asked

    def _filled(self, prompt: str, hint: str) -> str:
        put = {"prompt": prompt, "hint": hint}
        return re.sub(r"\{(prompt|hint)\}", lambda place: put[place[1]], self.spec.template)

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order.state_dict(), "waiting": list(self.waiting), "begun": self.begun}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.order.load_state_dict(state["order"])
        self.waiting, self.begun = deque(state["waiting"]), state["begun"]
