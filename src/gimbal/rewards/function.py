"""A user's Python function as a reward."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from gimbal.config.classes import nearest
from gimbal.config.own import LARGEST, learnable
from gimbal.config.parts import WEIGHTED, at_top, label, main_file, resolve
from gimbal.records import Group, Rollout, Task
from gimbal.rewards.adapters import COLUMN, GIVEN, TEXTS, TOGETHER, make
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.isolation import RewardError, worker
from gimbal.sandbox._worker import UNSEEN
from gimbal.sandbox.worker import Worker, WorkerError


@runtime_checkable
class _TokenRow(Protocol):
    """What a rollout's decisions must hold for ``completion_ids``."""

    ids_NL: Tensor
    prompt_N: Tensor


@dataclass(frozen=True, kw_only=True)
class Function(AbstractReward):
    """A Python function: "module:name", "path/to/file.py:name" or the function itself (sync or async); its parameters select the
    signature.

    TRL's f(prompts, completions, [completion_ids,] **columns) -> list[float | None], one call per group; f(group) ->
    list[float | None]; f(rollout) -> float | None; verl's compute_score(data_source, solution_str, ground_truth,
    extra_info) -> float or {"score": float}. Columns are those of the dataset, and ``id``, ``source`` and ``answer``.
    None: the reward does not apply.

    It runs in its own sandboxed process (docs/isolation.md), in the directory where the run was started. It can read that directory,
    its file's directory, what Python imports, and ``reads``; it can write to a temporary directory, and to ``writes``. It sees only the
    environment variables named in ``variables``; ``memory_gb`` limits it and everything it starts (0: no limit; needed if it uses a
    GPU); ``network=False`` blocks the network. The run ends with a RewardError if the function raises, returns anything but None or one
    number of size at most 1e15 per rollout, or takes longer than ``timeout`` seconds for a group. Its output is discarded, except for
    the last line before its process dies.
    """

    function: str | Callable[..., Any]
    name: str = ""  # "": the function's own
    timeout: float = 30.0
    memory_gb: float = 8.0
    variables: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    network: bool = True

    def __post_init__(self) -> None:
        function, own = self._held(), ""
        if isinstance(function, str):
            place, _, own = function.rpartition(":")
            if not place or not own:
                raise ValueError(f"a reward function is 'module:name' or 'path/to/file.py:name', got {function!r}")
        elif isinstance(function, type):
            raise ValueError(
                f"{function.__name__} is a class; a reward is a function, or a part: {function.__name__}()"
            )
        else:
            own = function.__name__ if inspect.isfunction(function) else type(function).__name__
        object.__setattr__(self, "function", function)
        for field in ("variables", "reads", "writes"):
            if isinstance(value := vars(self)[field], str):
                raise ValueError(f"{field} of reward {own} is {value!r}; expected a list of them: ({value!r},)")
        if not self.name:
            object.__setattr__(self, "name", own)

    def _held(self) -> str | Callable[..., Any]:
        """The form sent to other processes. Functions of the running script or notebook are pickled whole: to import them a process
        would run the script again, and could not find a notebook at all. Functions of any other file are sent by name."""
        if isinstance(self.function, str):
            place = self.function.rpartition(":")[0]
            here = place == "__main__" or (place.endswith(".py") and Path(place).expanduser().resolve() == main_file())
            return resolve(self.function) if here else self.function
        of_file = inspect.isfunction(self.function) and os.path.isabs(self.function.__module__)
        return label(self.function) if of_file and at_top(self.function) else self.function

    @cached_property
    def _worker(self) -> Worker:
        return worker(
            self.name,
            partial(make, self._source()),
            timeout=self.timeout,
            memory_gb=self.memory_gb,
            variables=self.variables,
            directory=Path.cwd(),
            reads=(*self.reads, *self._own()),
            writes=self.writes,
            network=self.network,
        )

    def _source(self) -> str | Callable[..., Any]:
        """The function, or where it is: a file by its absolute path."""
        if not isinstance(self.function, str):
            return self.function
        place, _, own = self.function.rpartition(":")
        if not place.endswith(".py"):
            return self.function
        path = Path(place).expanduser().resolve()
        if not path.is_file():
            raise RewardError(f"reward {self.function}: there is no file {path}")
        return f"{path}:{own}"

    def _own(self) -> tuple[str, ...]:
        """Its file, and the directory with the modules next to it. They are listed by name: as root, the worker can be another user
        only if others may read all of them.
        """
        source = self._source()
        file = Path(source.rpartition(":")[0]) if isinstance(source, str) else Path()
        return (str(file.parent), *map(str, file.parent.glob("*.py"))) if file.suffix == ".py" else ()

    def open(self) -> Function:
        self._worker.start()
        return self

    def close(self) -> None:
        self._worker.close()

    def accepts(self, task: Task) -> None:
        columns = _columns(task)
        # A task without an answer has no column of that name either, unless the row itself says null.
        there = [name for name in columns if name != "answer" or task.answer is not None or name in task.columns]
        for name in (need.removeprefix(COLUMN) for need in self._needs if need.startswith(COLUMN)):
            if name not in there:
                raise RewardError(
                    f"reward {self.name} takes the column `{name}`, and task {task.id} has only {_shown(there)}"
                    f"{nearest(name, (*GIVEN, *there))}; name the parameter after a column of the rows, or give it a default: "
                    f"{name}=None"
                )

    @property
    def reads_texts(self) -> bool:
        """Whether it is given what was answered as text, and nothing else of it."""
        return TEXTS in self._needs

    @property
    def of_groups(self) -> bool:
        """Whether it is given all rollouts of a group, and may score each by the others."""
        return TOGETHER in self._needs

    @property
    def _needs(self) -> list[str]:
        try:
            return self._worker.needs
        except RewardError as error:
            raise RewardError(f"{error}{self._unseen(error)}") from error

    def _unseen(self, error: Exception) -> str:
        """What to do about a missing environment variable, if that is what it raised."""
        if (found := re.search(f"{UNSEEN} ([^ ]+)", str(error))) is None:
            return ""
        if found[1] in self.variables:
            return f"; {found[1]} is not set where the run was started either"
        own = repr(self.function) if isinstance(self.function, str) else self.name
        return f"; name it: Function(function={own}, variables={[*self.variables, found[1]]})".replace("'", '"')

    def __call__(self, group: Group) -> list[float | None]:
        self.accepts(group.task)
        try:
            values = self._worker(self._call(group, self._needs))
        except WorkerError as error:
            raise RewardError(
                f"reward {self.name} on task {group.task.id}: {error}{self._hint(error, group.task)}"
            ) from error
        self._check(values, group)
        return values

    def _call(self, group: Group, needs: list[str]) -> dict[str, Any]:
        """What adapters.py reads; costly parts only if the function reads them."""
        task = group.task
        # A function with **columns gets the token ids if there are any.
        of_tokens = all(isinstance(rollout.decisions, _TokenRow) for rollout in group.rollouts)
        asked = "completion_ids" in needs or ("columns" in needs and of_tokens)
        return {
            "prompt": task.prompt,
            "completions": [rollout.text for rollout in group.rollouts],
            "completion_ids": [_token_ids(r) for r in group.rollouts] if asked else None,
            "columns": _columns(task),
            "group": group if "group" in needs else None,
        }

    def _hint(self, error: WorkerError, task: Task) -> str:
        """A KeyError in a function that takes **columns usually means a missing column."""
        if unseen := self._unseen(error):
            return unseen
        return f"; the columns are {_shown(_columns(task))}" if "raised KeyError" in str(error) else ""

    def _check(self, values: list[float | None], group: Group) -> None:
        where = f"reward {self.name} on task {group.task.id}"
        if not isinstance(values, list) or not all(value is None or isinstance(value, float | int) for value in values):
            raise RewardError(f"{where}: its process answered {values!r:.80}; expected a list of numbers")
        if len(values) != len(group.rollouts):
            raise RewardError(
                f"{where}: it returned {len(values)} score{'s' * (len(values) != 1)} for {len(group.rollouts)} completions; "
                "expected one for each, None where it does not apply"
            )
        for sample, value in enumerate(values):
            if value is not None and learnable(value) is None:
                raise RewardError(
                    f"{where}: it returned {value!s:.60} as the score of completion {sample}; expected a finite number of size "
                    f"{LARGEST:g} at most, or None where it does not apply"
                )


def short(value: Any) -> Any:
    """A function, or a reference to one (mine.py:score, or weighted mine.py:score*0.7), as a reward; anything else as it is."""
    if isinstance(value, str):
        found = WEIGHTED.fullmatch(value)
        return Function(function=found[1], weight=float(found[2] or 1)) if found else value
    return Function(function=value) if callable(value) and not isinstance(value, AbstractReward) else value


def _columns(task: Task) -> dict[str, Any]:
    """The arguments taken from a task, besides prompt and completions."""
    return {"id": task.id, "source": task.source, "answer": task.answer, **task.columns}


def _shown(columns: Iterable[str]) -> str:
    """The columns as the user knows them. A chat is also passed as ``messages``, which its file may not have."""
    return f"{', '.join(sorted({*columns} - {'messages'}))}, and its prompt as prompts"


def _token_ids(rollout: Rollout) -> list[int]:
    if not isinstance(rollout.decisions, _TokenRow):
        raise RewardError(f"completion_ids are asked for, but {type(rollout.decisions).__name__} holds no tokens")
    return rollout.decisions.ids_NL[0, int(rollout.decisions.prompt_N[0]) :].tolist()
