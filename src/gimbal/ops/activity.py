"""What each thread is busy with, so that a watchdog can name what does not return."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_stacks: dict[int, list[Activity]] = {}  # by thread


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A call that may take long: its caller, task, turn and start time (``time.monotonic``)."""

    call: str
    task: str = ""
    turn: int = 0
    since: float

    def __str__(self) -> str:
        where = f" for task {self.task}, turn {self.turn}" if self.task else ""
        return f"{self.call}{where}, {time.monotonic() - self.since:.1f} s so far"


@contextmanager
def doing(call: str, *, task: str = "", turn: int = 0) -> Iterator[None]:
    """Within it this thread is known to be in ``call``."""
    stack = _stacks.setdefault(threading.get_ident(), [])
    stack.append(Activity(call=call, task=task, turn=turn, since=time.monotonic()))
    try:
        yield
    finally:
        stack.pop()


def activities() -> list[Activity]:
    """The innermost call of every thread that is in one, the longest first."""
    return sorted((stack[-1] for stack in list(_stacks.values()) if stack), key=lambda one: one.since)
