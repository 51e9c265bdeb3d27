"""Calls of code that may be slow or never return, each in its own thread and with a deadline.

Python cannot end a thread. One that does not return is abandoned with its resources and counted: a process has at most
``MOST_HUNG`` of them, and the next one ends the run, since each keeps its memory and perhaps a core.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gimbal.ops.activity import doing

MOST_AT_ONCE = 256  # calls; further ones wait for a thread, and their deadline begins when they have one
MOST_HUNG = 32  # threads that never came back


class Late(Exception):
    """A call did not come back within its deadline; ``what`` it was doing then."""

    def __init__(self, said: str, what: str) -> None:
        super().__init__(said)
        self.what = what


class Hung(ValueError):
    """Too many calls never returned; the process should end."""


@dataclass(kw_only=True, eq=False)
class Call:
    """One call and its result. ``began`` is None while it waits for a thread, and ``deadline`` is in seconds from there."""

    what: str
    deadline: float
    task: str
    turn: int
    run: Callable[[Call], Any]
    began: float | None = None
    took: float = 0.0  # seconds, once it is over
    given_up: bool = False
    over: bool = False
    value: Any = None
    error: BaseException | None = None
    done: threading.Condition = field(default_factory=threading.Condition)

    @property
    def name(self) -> str:
        return f"{self.what} for task {self.task}, turn {self.turn}"

    def go_on(self, task: str, turn: int, what: str = "", deadline: float = 0.0) -> bool:
        """For code that does several things in one call: the next one starts, and has ``deadline`` seconds (0: as many as the one
        before). False: no caller waits for it."""
        with self.done:
            if self.given_up:  # and its name is on record as it was then
                return False
            self.what, self.task, self.turn, self.began = what or self.what, task, turn, time.monotonic()
            self.deadline = deadline or self.deadline
            self.done.notify_all()
        return True

    @property
    def left(self) -> float:
        """Seconds until it is over or late; 0 where it is."""
        if self.over:
            return 0.0
        return self.deadline if self.began is None else max(0.0, self.began + self.deadline - time.monotonic())

    def result(self) -> Any:
        """What it returned or raised; Late where after its deadline it has done neither."""
        with doing(self.what, task=self.task, turn=self.turn), self.done:
            while not self.over and self.left > 0:
                self.done.wait(None if math.isinf(self.left) else self.left)
            # As of now: it may go on to the next thing before it is given up.
            late = Late(f"{self.name} did not answer within {self.deadline:g} s", self.what)
        if not self.over:
            DESK.give_up(self, late=True)
            raise late
        if self.error is not None:
            raise self.error
        return self.value


class Desk:
    """The process's threads for such calls, started on demand and reused."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended = threading.Condition()  # told of each call that is over
        self._waiting: deque[Call] = deque()
        self._idle = 0
        self._threads = 0
        self.hung: list[Call] = []  # calls given up whose threads have not come back
        self.late = 0  # calls since the process began that passed their deadline

    def call(
        self, what: str, run: Callable[[Call], Any], *, deadline: float = math.inf, task: str = "", turn: int = 0
    ) -> Call:
        """Begin it, as soon as there is a thread for it."""
        call = Call(what=what, deadline=deadline, task=task, turn=turn, run=run)
        with self._changed:
            self._waiting.append(call)
            if self._idle < len(self._waiting) and self._threads - len(self.hung) < MOST_AT_ONCE:
                self._threads += 1
                # A daemon: a thread that hangs must not keep the process from ending.
                threading.Thread(target=self._work, name="gimbal-call", daemon=True).start()
            self._changed.notify()
        return call

    def give_up(self, call: Call, *, late: bool = False) -> None:
        """No caller waits for it any more: it is ``late`` or not wanted. Its thread counts as hung until it returns."""
        with self._changed:
            call.given_up = True
            if call in self._waiting:
                self._waiting.remove(call)
                return
            if call.over:
                return
            self.late += late
            self.hung.append(call)
            if late and len(self.hung) > MOST_HUNG:
                raise Hung(
                    f"{len(self.hung)} calls have not returned, {self.hung[0].name} the first and {call.name} the last; fix them "
                    "or add time limits, then --resume"
                )

    def wait(self, calls: Sequence[Call]) -> None:
        """Until one of these is over or late."""
        with self._ended:
            while (left := min(call.left for call in calls)) > 0:
                self._ended.wait(min(left, 1.0))  # one that goes on may have less time from then on

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._waiting:
                    self._changed.wait()
                self._idle -= 1
                call = self._waiting.popleft()
            begun = time.monotonic()
            with call.done:
                call.began = begun
                call.done.notify_all()
            try:
                with doing(call.what, task=call.task, turn=call.turn):
                    call.value = call.run(call)
            except BaseException as error:  # whatever somebody's code raises belongs to who asked for it
                call.error = error
            with self._changed:
                with call.done:
                    call.over, call.took = True, time.monotonic() - begun
                    call.done.notify_all()
                if call.given_up:
                    self.hung.remove(call)
            with self._ended:
                self._ended.notify_all()
            del call  # and with it what it has run: this thread may have nothing else to do for long


DESK = Desk()  # of this process: engines come and go, and threads are not to pile up with them
