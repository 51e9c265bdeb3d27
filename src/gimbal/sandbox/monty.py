"""Small Python programs in a separate interpreter without access to the machine (pydantic-monty)."""

from __future__ import annotations

import atexit
import datetime
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from gimbal.sandbox.base import AbstractSandboxSpec, checked, unavailable
from gimbal.sandbox.live import (
    DEADLINE,
    MEMORY,
    MOST_SECONDS,
    OUTPUT,
    SIZE,
    AbstractSandbox,
    Lost,
    Outcome,
    OverLimit,
    Program,
    Unavailable,
    allowed,
    inside,
)

HOME = "/home"
CALLS = 1_000  # to files, within one program
DEEP = 500  # calls of functions within each other
FILES = 1_000
LONGEST = 4096  # characters of a path
SPAWN_SECONDS = 30.0  # for an interpreter to be free: at most as many run as there are cores
START = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)  # the time that programs see: the same again


@dataclass(frozen=True, kw_only=True)
class Monty(AbstractSandboxSpec):
    """An interpreter for a subset of Python: functions, comprehensions, exceptions, math, json, re, ... but no generators, no
    inheritance, no packages. Commands are refused. Needs the extra ``sandbox``.

    Names persist between calls, as in a session, and so do files, which are kept in memory, not on disk; a program killed at a limit
    has changed nothing. All state is bytes (``Interpreted.state``): forks are free, and a state resumed elsewhere gives the same
    results. The clock stands still, sleeping takes no time, and ``seed`` seeds the random numbers.
    """

    timeout: float = 2.0
    memory_gb: float = 0.05
    output: int = 65_536
    disk_mb: float = 8.0
    seed: int = 0

    def __post_init__(self) -> None:
        checked(self, ("timeout", self.timeout, MOST_SECONDS), ("memory_gb", self.memory_gb, 64))
        checked(self, ("output", self.output, 1 << 20), ("disk_mb", self.disk_mb, 1024))

    def missing(self) -> str:
        return unavailable(_monty)

    @property
    def commands(self) -> bool:
        return False

    def start(self) -> Interpreted:
        _monty()  # it is installed, or this says so
        return Interpreted(self, State())


Files = tuple[tuple[str, bytes], ...]  # path and content


@dataclass(frozen=True, kw_only=True)
class State:
    """All that there is of a session between two calls."""

    session: bytes = b""  # none yet
    files: Files = ()


class Interpreted(AbstractSandbox):
    """A state, and interpreters in processes that are shared: each call loads the state into one and takes it out again."""

    def __init__(self, spec: Monty, state: State) -> None:
        self.spec, self.state, self.closed = spec, state, False

    def exec(self, program: Program, *, stdin: str = "", seconds: float | None = None) -> Outcome:
        if not isinstance(program, str):
            raise ValueError(
                f"Monty interprets Python programs; the command {list(program)!r} needs Landlock() or Bubblewrap()"
            )
        if stdin:
            raise ValueError("Monty has no standard input; write a file and let the program open it")
        seconds = allowed(self.spec.timeout if seconds is None else seconds)
        self._open()
        monty, spec = _monty(), self.spec
        limits: dict[str, Any] = {
            "max_memory": int(spec.memory_gb * 2**30),
            "max_feed_duration_secs": seconds,
            "max_recursion_depth": DEEP,
            "max_suspensions": CALLS,
        }
        policy: dict[str, Any] = {"datetime": START, "sleep": "zero", "random_start": {"seed": spec.seed}}
        said = monty.CollectStreams(spec.output)
        code, errors = 0, ""
        try:
            with _pool().checkout(limits=limits, os_policy=policy, script_name="program.py") as session:
                # Here, for its time begins with the program, and not while that waits for an interpreter to be free.
                files = _files(self.state.files, int(spec.disk_mb * 2**20), seconds)
                if self.state.session:
                    session.load_session(self.state.session)  # it brings its limits along, which are the same
                try:
                    session.feed_run(program, print_callback=said, os=files, cwd=HOME)
                except monty.MontyError as error:
                    code, errors = 1, self._words(error, seconds)
                if files.late:
                    raise OverLimit.of(DEADLINE, seconds)
                kept = _contents(files)
                self._fits(kept)
                self.state = State(session=session.dump(), files=kept)
        except monty.MontyCrashedError as error:
            if error.timed_out:  # by whoever waits for it: it did not end itself
                raise OverLimit.of(DEADLINE, seconds) from error
            raise Lost(f"its interpreter ended ({error}); the state is that before the call") from error
        except TimeoutError as error:
            raise Lost(
                f"no interpreter was free for {SPAWN_SECONDS:g} seconds; the state is that before the call"
            ) from error
        words = {
            stream: "".join(text for where, text in said.output if where == stream) for stream in ("stdout", "stderr")
        }
        return Outcome(code=code, output=words["stdout"], errors=words["stderr"] + errors)

    def _words(self, error: Any, seconds: float) -> str:
        """What the program raised, as Python would show it; where that says a limit, it is an OverLimit."""
        monty = _monty()
        if isinstance(error, monty.MontyCrashedError):
            raise error
        words = str(error)
        if "time limit exceeded" in words:
            raise OverLimit.of(DEADLINE, seconds) from error
        if "memory limit exceeded" in words and f"> {self.spec.output} bytes" in words:
            raise OverLimit.of(OUTPUT, self.spec.output) from error
        if "memory limit exceeded" in words:
            raise OverLimit.of(MEMORY, self.spec.memory_gb) from error
        shown = error.display() if isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError) else words
        return shown.rstrip("\n") + "\n"

    def write(self, path: str, content: bytes) -> None:
        self._open()
        kept = tuple(sorted((dict(self.state.files) | {inside(path): content}).items()))
        self._fits(kept)
        self.state = replace(self.state, files=kept)

    def _fits(self, kept: Files) -> None:
        most = self.spec.disk_mb
        if sum(len(content) for _, content in kept) > most * 2**20 or len(kept) > FILES:
            raise OverLimit(SIZE, f"its files take more than {most:g} MB, or are more than {FILES:,}")

    def read(self, path: str) -> bytes:
        self._open()
        files = dict(self.state.files)
        if (name := inside(path)) not in files:
            raise FileNotFoundError(f"{path} is not there; there are {', '.join(files) or 'no files'}")
        return files[name]

    def fork(self) -> Interpreted:
        self._open()
        return Interpreted(self.spec, self.state)

    def resume(self, state: State) -> None:
        """Go on from there. Only from a state that this class has made: the interpreter trusts it."""
        self._open()
        self.state = state

    def close(self) -> None:
        self.closed, self.state = True, State()

    def _open(self) -> None:
        if self.closed:
            raise Lost("was closed; open another")


def _files(kept: Iterable[tuple[str, bytes]], most: int, seconds: float) -> Any:
    """The files of a program, beneath HOME. What it writes is held here, in the trainer: so it is counted, and so is the time."""
    monty = _monty()

    class Counted(monty.OSAccess):
        room, until, late = most, time.monotonic() + seconds, False

        def __call__(self, *, name: Any, args: tuple[Any, ...], **others: Any) -> Any:
            if time.monotonic() > self.until:  # its own clock stands still while this runs
                self.late = True
                raise OSError(62, "Timer expired")
            if any(len(str(one)) > LONGEST for one in args[:1]):
                raise OSError(36, "File name too long")
            if "write" in name or "append" in name:
                self.room -= sum(len(one) for one in args[1:] if isinstance(one, str | bytes))
                if self.room < 0:
                    raise OSError(28, "No space left on device")
            return super().__call__(name=name, args=args, **others)

    made = Counted([monty.MemoryFile(f"{HOME}/{name}", content) for name, content in kept], environ={})
    if not kept:
        made.path_mkdir(PurePosixPath(HOME), True, True)
    return made


def _contents(files: Any) -> Files:
    found = {}
    for file in files.files:
        path = PurePosixPath(file.path)
        if file.deleted or not path.is_relative_to(HOME):
            continue
        content = file.read_content()
        found[str(path.relative_to(HOME))] = content.encode() if isinstance(content, str) else bytes(content)
    return tuple(sorted(found.items()))


def _monty() -> Any:
    try:
        import pydantic_monty
    except ImportError as error:
        raise Unavailable(
            "Monty needs the package pydantic-monty, which is not installed: pip install 'gimbal-rl[sandbox]' (in the clone: "
            "pip install -e '.[sandbox]'), or choose Landlock()"
        ) from error
    return pydantic_monty


_LOCK = threading.Lock()
_POOLS: dict[int, Any] = {}


def _pool() -> Any:
    """The interpreters of this process: started once, and ended with it. A fork of this process has its own."""
    with _LOCK:
        if os.getpid() not in _POOLS:
            # Past a program's own limit, which it has a second to notice: then its process is ended.
            pool = _monty().Monty(min_processes=1, checkout_timeout=SPAWN_SECONDS)
            try:
                pool.__enter__()
            except Exception as error:  # whatever keeps a program from starting: no such file, no right to
                raise Unavailable(f"Monty's interpreter does not start: {error}") from error
            _POOLS[os.getpid()] = pool
            atexit.register(pool.__exit__, None, None, None)
        return _POOLS[os.getpid()]
