"""Pairs of right answers, one of them badly formed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

from gimbal.environments.base import AbstractTasks
from gimbal.environments.worked import Worked
from gimbal.records import Task

Fault = Literal["bare", "unmarked", "spelt"]
TAG = re.compile(r"</?(\w+)>")


@dataclass(frozen=True, kw_only=True)
class FormPairs(AbstractTasks):
    """Pairs of texts that differ in their format alone.

    ``columns["completion"]`` holds two texts with the same content, the first well formatted, and ``columns["score"]`` 1 and 0:
    pairs for a preference about format (Metis-SPECS, arXiv:2510.25801).

    The tasks bring the first in ``completion``: right answers of the policy itself, as JSONL, or a Worked set. Its tags are damaged in
    one of these ways, drawn by (``seed``, index):

    - "bare": all tags are gone.
    - "unmarked": the answer's own, ``answer``, are gone.
    - "spelt": the answer's own give way to words.
    """

    tasks: AbstractTasks = Worked()
    faults: tuple[Fault, ...] = get_args(Fault)
    answer: str = "answer"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.faults:
            raise ValueError(f"FormPairs.faults is empty; choose of {', '.join(get_args(Fault))}")

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index]
        good = str(task.columns.get("completion", ""))
        fault = Random(f"form:{self.seed}:{index}").choice(self.faults)
        if (bad := self._spoilt(good, fault)) == good:
            raise ValueError(
                f"the completion of task {task.id} has no tags <{self.answer}> to take away: {good[:60]!r}; FormPairs needs "
                "well-formed ones"
            )
        return replace(task, columns={**task.columns, "completion": [good, bad], "score": [1.0, 0.0]})

    def _spoilt(self, text: str, fault: Fault) -> str:
        opening = " The answer is " if fault == "spelt" else " "

        def put(tag: re.Match[str]) -> str:
            if tag[1] == self.answer:
                return "" if tag[0].startswith("</") else opening
            return "" if fault == "bare" else tag[0]

        return TAG.sub(put, text)
