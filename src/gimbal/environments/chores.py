"""Small tasks for a terminal, each checked by running it before it is a task (after CLI-Universe, arXiv:2606.22883, and EvoCUA,
arXiv:2601.15876: the task and its check are written together, and kept only if the check tells a solution from none)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

from gimbal.config.classes import nearest
from gimbal.environments.base import AbstractTasks
from gimbal.environments.chore_kinds import KINDS, Draft, Kind
from gimbal.environments.terminal import PLAIN, Terminal, TerminalSession, tried
from gimbal.records import Task
from gimbal.sandbox.base import AbstractSandboxSpec

SHIPPED = Path(__file__).parents[1] / "assets" / "chores.jsonl"
HELD_OUT = 4  # every so many-th task of a kind is held out
DROPPED = ("reference_fails", "null_passes", "unrepeatable", "duplicate")
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Chores(AbstractTasks):
    """The tasks for a terminal that gimbal ships, of these ``kinds`` (none named: all): files, counting, text, bugs, functions.

    Each is a chat of one message, with the columns ``files`` and ``check`` of environments.terminal.Terminal, and its solution in
    ``programs``. ``split`` is train or held_out; what is asked in one is not asked in the other.
    """

    kinds: tuple[str, ...] = ()
    split: Literal["train", "held_out"] = "train"

    def __post_init__(self) -> None:
        kinds = (self.kinds,) if isinstance(self.kinds, str) else tuple(self.kinds)
        object.__setattr__(self, "kinds", kinds)
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(f"Chores has no kind {kind!r}{nearest(kind, KINDS)}; there are {', '.join(KINDS)}")

    def __len__(self) -> int:
        return len(_chosen(self.kinds, self.split))

    def __getitem__(self, index: int) -> Task:
        rows = _chosen(self.kinds, self.split)
        if not 0 <= index < len(rows):
            raise IndexError(f"task {index} of {len(rows)}")
        return task_of(rows[index])


def task_of(row: Row) -> Task:
    """A row of chores as a task."""
    columns = {name: value for name, value in row.items() if name not in ("id", "kind", "prompt", "answer")}
    return Task(
        id=row["id"], answer=row["answer"], source=row["kind"], columns=columns | {"messages": list(row["prompt"])}
    )


@cache
def _shipped() -> tuple[Row, ...]:
    return tuple(map(json.loads, SHIPPED.read_text(encoding="utf-8").splitlines()))


@cache
def _chosen(kinds: tuple[str, ...], split: str) -> tuple[Row, ...]:
    return tuple(row for row in _shipped() if row["split"] == split and row["kind"] in (kinds or KINDS))


def synthesised(
    kinds: Mapping[str, Kind], count: int, sandbox: AbstractSandboxSpec, seed: int = 0
) -> tuple[list[Row], Counter[str]]:
    """(``count`` tasks of each kind as rows of a JSONL file, how many drafts were kept and dropped, by reason).

    Each draft is tried in ``sandbox``; see ``gate``. One that asks what another did is dropped as a duplicate.
    """
    rows: list[Row] = []
    told: Counter[str] = Counter()
    seen: set[str] = set()
    for name, kind in kinds.items():
        for number, draft in _kept(name, kind, sandbox, seed, seen, told):
            split = "held_out" if number % HELD_OUT == HELD_OUT - 1 else "train"
            rows.append({"id": f"{name}:{seed}:{number}", "kind": name, "split": split} | _row(draft))
            if number + 1 == count:
                break
    return rows, told


def _kept(
    name: str, kind: Kind, sandbox: AbstractSandboxSpec, seed: int, seen: set[str], told: Counter[str]
) -> Iterator[tuple[int, Draft]]:
    number = 0
    for attempt in range(10**9):
        draft = kind(Random(f"chores:{seed}:{name}:{attempt}"))
        asks = json.dumps([draft.prompt, dict(draft.files)], sort_keys=True)
        draft, wrong = (draft, "duplicate") if asks in seen else gate(draft, sandbox)
        told[wrong or "kept"] += 1
        seen.add(asks)
        if not wrong:
            yield number, draft
            number += 1
        elif attempt > 100 + 100 * number:
            raise ValueError(f"of the first {attempt} drafts of {name} {number} were kept; dropped were {dict(told)}")


def gate(draft: Draft, sandbox: AbstractSandboxSpec) -> tuple[Draft, str]:
    """The draft with what its check compares with, and why it is no task ("": it is one), found out by running it.

    - reference_fails: a program of its solution fails, or the solution does not earn 1;
    - null_passes: whoever does nothing, and answers nothing or with a word of the question, earns it too;
    - unrepeatable: the solution again is told something else.
    """
    terminal = Terminal(sandbox=sandbox)
    if "calls" in draft.check:
        holds = _expected(draft, terminal)
        if holds is None:
            return draft, "reference_fails"
        draft = Draft(**vars(draft) | {"check": {**draft.check, "holds": holds}})
    programs = [PLAIN + program for program in draft.programs]
    earned, told = _played(draft, terminal, programs)
    if earned != 1:
        return draft, "reference_fails"
    if any(_played(draft, terminal, [], word)[0] for word in ("", *set(draft.prompt.split()))):
        return draft, "null_passes"
    return draft, "" if _played(draft, terminal, programs)[1] == told else "unrepeatable"


def _played(
    draft: Draft, terminal: Terminal, turns: Sequence[str], answer: str | None = None
) -> tuple[float, list[str]]:
    """What these turns and this answer earn (0 where a program fails), and what they are told; the answer is what was told last."""
    live = terminal.open()
    try:
        live.reset(task_of({"id": "draft", "kind": draft.kind} | _row(draft)), 0)
        moments = [live.step(turn) for turn in turns]
        told = [moment.observation[0]["content"] for moment in moments]
        earned = live.step(f"<answer>{told[-1] if answer is None else answer}</answer>").reward
    finally:
        live.close()
    return (0.0 if any(moment.errors for moment in moments) else earned), told


def _expected(draft: Draft, terminal: Terminal) -> str | None:
    """What the calls of the check print with the reference solution in place."""
    live: TerminalSession = terminal.open()
    try:
        live.reset(task_of({"id": "draft", "kind": draft.kind} | _row(draft)), 0)
        if any(live.step(PLAIN + program).errors for program in draft.programs):
            return None
        source = live.opened.read(draft.check["file"]).decode()
    except OSError:  # it wrote no such file
        return None
    finally:
        live.close()
    return tried(terminal.sandbox, source, draft.check["calls"])


def _row(draft: Draft) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": draft.prompt}],
        "answer": draft.answer,
        "files": dict(draft.files),
        "check": dict(draft.check),
        "programs": list(draft.programs),
    }
