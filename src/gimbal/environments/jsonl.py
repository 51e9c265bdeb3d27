"""Tasks from rows: a JSONL file, or a list of dicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gimbal.config import plain
from gimbal.environments.base import AbstractTasks
from gimbal.records import Task, is_chat


@dataclass(frozen=True, kw_only=True)
class Jsonl(AbstractTasks):
    """One JSON object a line. The column ``prompt`` is required, text or chat messages; ``answer`` is Task.answer;
    ``id`` (made of the line's number where missing) must be unique; ``data_source`` is Task.source. All columns but
    the prompt go to rewards untouched.

    ``prompt`` and ``answer`` name the columns: ``tasks.prompt=question`` reads question/answer files. The file is
    read at first use. Chat messages stay a list, in ``Task.columns["messages"]``, with an empty ``Task.prompt``: the
    policy's chat template renders them. (So no other column may be called ``messages``.) A column ``prompt_ids`` is asked
    as the tokens that it is.
    """

    path: str
    prompt: str = "prompt"
    answer: str = "answer"

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]

    @cached_property
    def _tasks(self) -> tuple[Task, ...]:
        return _tasks(_lines(Path(self.path)), self.path, Path(self.path).stem, self.prompt, self.answer)


@dataclass(frozen=True, kw_only=True)
class Rows(AbstractTasks):
    """The same from a list of dicts, for Python callers. numpy's and torch's numbers and arrays become Python's."""

    rows: Sequence[Mapping[str, Any]] = field(hash=False)
    prompt: str = "prompt"
    answer: str = "answer"

    def __post_init__(self) -> None:
        rows = []
        for number, row in enumerate(self.rows):
            try:
                rows.append(plain(row))
            except (ValueError, RecursionError) as error:
                what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                raise ValueError(f"the list of rows, row {number}: {what}") from error
        object.__setattr__(self, "rows", rows)

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]

    @cached_property
    def _tasks(self) -> tuple[Task, ...]:
        rows = ((f"row {number}", row) for number, row in enumerate(self.rows))
        return _tasks(rows, "the list of rows", "row", self.prompt, self.answer)


def short(value: Any) -> Any:
    """The name of a JSONL file, or a list of dicts, as tasks; anything else as it is."""
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith((".jsonl", ".json"))):
        return Jsonl(path=str(value))
    return Rows(rows=value) if isinstance(value, Sequence) and not isinstance(value, str) else value


class _Twice(ValueError):
    """Of two values of one key all but the last would be lost without a word."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(ascii(next(name for name in names if names.count(name) > 1))[:80])
    return row


def _lines(path: Path) -> Iterable[tuple[str, Any]]:
    """("line 3", its value) of every line that is not blank."""
    if path.exists() and not path.is_file():  # a pipe would be waited for, for good, and is empty when a run is resumed
        raise ValueError(
            f"{path} is no file; a file of tasks has one JSON object a line, and is read again by --resume and eval"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}; a file of tasks has one JSON object a line") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a JSONL file: {error}") from error
    # Not splitlines: strings in JSON may hold the other line separators.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line, object_pairs_hook=_once)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error.msg}, column {error.colno})") from error
        except _Twice as error:
            raise ValueError(f"{path}, line {number}: the key {error} is there twice; leave one of them out") from error
        except RecursionError as error:
            raise ValueError(f"{path}, line {number}: it is nested too deeply") from error
        except ValueError as error:  # Python reads no more
            most = sys.get_int_max_str_digits()
            raise ValueError(
                f"{path}, line {number}: a number of more than {most:,} digits; write it as text, in quotes"
            ) from error


def _tasks(rows: Iterable[tuple[str, Any]], file: str, stem: str, prompt: str, answer: str) -> tuple[Task, ...]:
    tasks: dict[str, Task] = {}
    for where, row in rows:
        task = _task(row, f"{file}, {where}", f"{stem}:{where.split()[1]}", prompt, answer)
        if task.id in tasks:
            raise ValueError(f"{file}, {where}: the id {task.id!r} has come before; ids are unique, or left out")
        tasks[task.id] = task
    if not tasks:
        raise ValueError(f"{file} holds no tasks; expected one object with a {prompt!r} a line")
    return tuple(tasks.values())


def _task(row: Any, where: str, made_id: str, prompt: str, answer: str) -> Task:
    if not isinstance(row, Mapping):
        raise ValueError(f"{where}: expected an object, got {type(row).__name__}")
    if prompt not in row:
        columns = ", ".join(map(str, row)) or "none"
        raise ValueError(
            f"{where}: there is no column {prompt!r}; columns: {columns} (tasks.prompt=NAME reads another one)"
        )
    for key, value in row.items():
        try:
            json.dumps([key, value], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:  # nothing can tokenise it, or write it to a file
            half = f"half of a surrogate pair, {error.object[error.start]!a}"
            raise ValueError(f"{where}: {key!a:.60} holds {half}, which is no character; leave it out") from error
    asked, right = row[prompt], row.get(answer)
    if "messages" in row and prompt != "messages":
        raise ValueError(
            f"{where}: there are a prompt and the column messages, and a policy is asked one of them: tasks.prompt=messages takes "
            "the chat; else call the column something else"
        )
    columns = {key: value for key, value in row.items() if key != prompt}
    if is_chat(asked):
        columns["messages"] = asked
    elif not isinstance(asked, str) or not asked:
        raise ValueError(f"{where}: {prompt!r} is {asked!r:.60}; expected text, or chat messages with role and content")
    return Task(
        id=str(row.get("id", made_id)),
        prompt=asked if isinstance(asked, str) else "",
        answer=None if right is None else str(right),
        source=str(row.get("data_source", "")),
        columns=columns,
    )
