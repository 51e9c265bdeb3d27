"""What is known of a run's tasks before its first step: which rows are looked at, which columns they have, which are held out too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from gimbal.chats import is_chat, spoken
from gimbal.composition import AbstractPart
from gimbal.environments.base import AbstractTasks
from gimbal.environments.dataset import Dataset, Rows
from gimbal.environments.mixture import Mixed
from gimbal.environments.split import Split
from gimbal.nested import walk
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.denoiser import GIVEN, LABEL, Denoiser
from gimbal.policies.masked import MaskedPolicy
from gimbal.policies.prompts import roles
from gimbal.policies.token import TokenPolicy
from gimbal.records import Task
from gimbal.runtime.run import AbstractRun
from gimbal.workflows.base import AbstractWorkflow

MOST_SHOWN = 8  # characters that are named


def overlap(tasks: AbstractTasks, held_out: AbstractTasks) -> Iterator[str]:
    """Rows both held out and trained on: the evaluation would measure seen data."""
    trained, held = list(_row_sets(tasks)), list(_row_sets(held_out))
    if not trained or not held:
        return
    asked = np.concatenate([rows.questions() for rows in held])
    count = int(np.isin(asked, np.concatenate([rows.questions() for rows in trained])).sum())
    if count:
        which = f"all {count:,}" if count == len(asked) else f"{count:,} of {len(asked):,}"
        yield (
            f"{which} held-out tasks are also trained on, so the evaluation also measures memorisation: held_out=0.1 sets tasks aside "
            "and trains on none of them"
        )


def _row_sets(tasks: AbstractTasks) -> Iterator[AbstractTasks]:
    """Tasks whose every row was checked, so that each question is known."""
    match tasks:
        case Mixed():
            for each in tasks.sets:
                yield from _row_sets(each)
        case Dataset(streaming=False) | Rows() | Split(tasks=Dataset() | Rows()):
            yield tasks


def looked_at(tasks: AbstractTasks) -> Iterator[Task]:
    """All rows, or a sample that represents them; of other tasks only the first."""
    match tasks:
        case Split():
            yield from looked_at(tasks.tasks)
        case Mixed():
            for each in tasks.sets:
                yield from looked_at(each)
        case Dataset(streaming=False):
            yield from (tasks[index] for index in tasks.telling)
        case Rows():
            yield from (tasks[index] for index in range(len(tasks)))
        case _:
            yield tasks[0]


class Unread:
    """Counts the rows with characters that a policy's vocabulary lacks: in their prompt or messages, or in what is imitated."""

    def __init__(self, policy: AbstractPolicy | None) -> None:
        self._tokenizer: Any = policy.tokenizer if isinstance(policy, TokenPolicy) else None
        self._known: dict[str, bool] = {}
        self.rows, self.hit, self.found = 0, 0, set[str]()

    def look(self, task: Task) -> None:
        if self._tokenizer is None or "prompt_ids" in task.columns:
            return
        lacking = {letter for text in _texts(task) for letter in set(text) if not self._knows(letter)}
        self.rows, self.hit, self.found = self.rows + 1, self.hit + bool(lacking), self.found | lacking

    def _knows(self, letter: str) -> bool:
        if letter not in self._known:
            ids = self._tokenizer.encode(letter, add_special_tokens=False)
            self._known[letter] = bool(ids) and self._tokenizer.unk_token_id not in ids
        return self._known[letter]

    @property
    def _instead(self) -> str:
        unknown = self._tokenizer.unk_token
        return f"it reads each as {unknown}, and learns to write that in its place" if unknown else "it leaves them out"

    def sentence(self) -> Iterator[str]:
        if self._tokenizer is not None and self.found:
            some = sorted(self.found)
            more = f" and {len(some) - MOST_SHOWN} more" if len(some) > MOST_SHOWN else ""
            yield (
                f"{self.hit:,} of {self.rows:,} rows that were looked at have characters that this model's vocabulary lacks "
                f"({' '.join(map(repr, some[:MOST_SHOWN]))}{more}); {self._instead}: replace them in the data, or take a model that "
                "has them"
            )


class Copied:
    """Tries on the policy the answers that a workflow copies, where only its chat template can write them: of each kind the first."""

    def __init__(self, policy: AbstractPolicy | None) -> None:
        self._policy = policy
        self._tried: set[tuple[object, ...]] = set()

    def look(self, task: Task, workflow: AbstractWorkflow) -> None:
        if not isinstance(self._policy, TokenPolicy | MaskedPolicy):
            return
        for said in workflow.copies(task):
            if is_chat([said]):
                kind = (roles(task.columns.get("messages")), task.columns.get("tools") is not None, tuple(said))
                if kind not in self._tried:
                    self._policy.encode_said(task, said)
                    self._tried.add(kind)


def _texts(task: Task) -> Iterator[str]:
    """What a model reads of a task, and what of its columns it imitates."""
    yield task.prompt
    for value in (task.columns.get("messages"), task.columns.get("completion")):
        for each in value if isinstance(value, Sequence) and not isinstance(value, str) else (value,):
            if isinstance(each, str | Mapping):
                yield each if isinstance(each, str) else spoken(each)


def unlabelled(run: AbstractRun, columns: Set[str]) -> Iterator[str]:
    """A reminder where rows of prompts are asked of a network that reads none of them."""
    reads = {LABEL, GIVEN} & columns
    if isinstance(run.policy, Denoiser) and not reads and any(_row_sets(run.tasks)):
        yield (
            f"{run.policy.model} reads no prompts: of a row it is told the class, from the column `{LABEL}`, and no row has it, so "
            "that every row asks for the same: add the column (a number from 0), or leave tasks out and set tasks.labels=[0,1,2]"
        )


def columns_there(run: AbstractRun, columns: Set[str]) -> None:
    """Refuse a part that reads a column of tasks which no row has. Of tasks that are generated only the first is known."""
    if not any(_row_sets(run.tasks)):
        return
    for place, part in walk(run):
        if (
            isinstance(part, AbstractPart)
            and not place.startswith("held_out")
            and (gone := sorted(part.columns() - columns))
        ):
            raise ValueError(
                f"{type(part).__name__} ({place}) goes by the column {gone[0]!r} of tasks, and no row has it, so it would do nothing: "
                f"add the column (rows have {', '.join(sorted(columns)) or 'none'} besides prompt and answer), or leave "
                f"{type(part).__name__} out"
            )
