"""The process that starts agents: python -m gimbal.serve._host PROGRAM. It imports the user's function once and forks for each episode.

Orders arrive as lines of JSON on its input, {"start": ID, "url": ..., "task": ..., "seed": ...} and {"stop": ID}; it writes
{"ended": ID, "score": ..., "error": ...} to its output. When its input ends, its owner is gone for any reason: all its descendants are
killed. An agent dies with this process, and everything left in an agent's process group dies with the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import math
import os
import random
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gimbal.config.own import raised, told, visible
from gimbal.config.parts import resolve
from gimbal.sandbox import _kernel as kernel

READ = 1 << 16
MOST_KEPT = 4000  # bytes of what an agent prints, for the sentence that names its failure
OUT = os.dup(1)  # to the owner
RESULT = 3  # the descriptor on which a function's result goes back


@dataclass(kw_only=True)
class Running:
    """A running agent: its number, and what has been read of its result and its output."""

    name: str
    result: int
    prints: int
    found: dict[int, bytes] = field(default_factory=dict)


class Starter:
    """One for each program. ``function`` is None where the program is a command line."""

    def __init__(self, program: str, function: Callable[..., Any] | None) -> None:
        self.program, self.function = program, function
        self.running: dict[int, Running] = {}  # by process
        self.selector = selectors.DefaultSelector()
        self.orders = b""

    def run(self) -> None:
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self.selector.register(wake, selectors.EVENT_READ)
        self.selector.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                data = _read(key.fd)
                if key.fd == 0 and not data:
                    return
                if key.fd == 0:
                    self._obey(data)
                elif key.fd != wake:
                    self._note(key.fd, data)
            self._reap()

    def end(self) -> None:
        """Kill all descendants of this process."""
        while family := _descendants(os.getpid()):
            for process in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.001)

    def _obey(self, data: bytes) -> None:
        *lines, self.orders = (self.orders + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "start" in order:
                self._start(order)
            for process, one in self.running.items():
                if one.name == order.get("stop"):
                    _kill(process)

    def _start(self, order: dict[str, Any]) -> None:
        (result, theirs), (prints, printed) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            self._become(order, theirs, printed)
        os.close(theirs)
        os.close(printed)
        for descriptor in (result, prints):
            os.set_blocking(descriptor, False)
            self.selector.register(descriptor, selectors.EVENT_READ)
        self.running[child] = Running(name=order["start"], result=result, prints=prints)

    def _become(self, order: dict[str, Any], result: int, prints: int) -> None:
        """The child: an episode, and nothing of the host's."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()  # what it starts can be ended with it
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            given = os.memfd_create("task")
            os.write(given, json.dumps(order["task"]).encode())
            os.lseek(given, 0, os.SEEK_SET)
            os.dup2(given, 0)
            os.dup2(prints, 1)
            os.dup2(prints, 2)
            os.dup2(result, RESULT)
            os.closerange(RESULT + 1, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 1 << 16 else 1 << 16)
            _surround(order["url"])
            status = self._act(order)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _act(self, order: dict[str, Any]) -> int:
        if self.function is None:
            os.close(RESULT)
            os.execvp("/bin/sh", ["sh", "-c", self.program])
        random.seed(order["seed"])
        try:
            score = self.function(order["url"], order["task"])
            score = asyncio.run(score) if inspect.iscoroutine(score) else score
            said = _given(score)
        except BaseException as error:  # an exit is no score either
            said = {"score": None, "error": f"it raised {raised(error)}{_lacking(error, order['task'])}"}
        os.write(RESULT, json.dumps(said).encode())
        return 0

    def _note(self, descriptor: int, data: bytes) -> None:
        for one in self.running.values():
            if descriptor in (one.result, one.prints):
                one.found[descriptor] = (one.found.get(descriptor, b"") + data)[-MOST_KEPT:]
        if not data:
            self.selector.unregister(descriptor)

    def _reap(self) -> None:
        """Reap agents that ended, and their orphans, which are re-parented to this process."""
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            if process in self.running:
                self._ended(process, os.waitstatus_to_exitcode(status))

    def _ended(self, process: int, code: int) -> None:
        one = self.running[process]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        for descriptor in (one.result, one.prints):
            if data := _read(descriptor):  # all that it can have left; a child of its own may go on printing for ever
                self._note(descriptor, data)
            with contextlib.suppress(KeyError):
                self.selector.unregister(descriptor)
            os.close(descriptor)
        del self.running[process]
        said: dict[str, Any] = {"score": None, "error": ""}
        if found := one.found.get(one.result):
            try:
                said = json.loads(found)
            except ValueError:  # a fork of its own that returned as well
                said["error"] = "it ended with more than one result"
        elif code:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            said["error"] = f"it ended with {how}"
        elif self.function is not None:
            said["error"] = "it ended its process before it returned"
        if said["error"] and (printed := one.found.get(one.prints, b"").decode(errors="replace").split()):
            said["error"] += f"; it printed: {visible(' '.join(printed))[-300:]}"
        _say({"ended": one.name, **said})


def _given(score: Any) -> dict[str, Any]:
    """The score that a function returned; one that is no number is NaN, with what it is: the agent did not fail."""
    try:
        if isinstance(score, str | bytes):
            raise TypeError("a text is no number, whatever it says")
        return {"score": None if score is None else float(score), "error": ""}
    except Exception:  # whatever the object of a user raises
        return {"score": math.nan, "error": "", "returned": told(score)}


def _lacking(error: BaseException, task: dict[str, Any]) -> str:
    """A KeyError is usually a column that the task lacks."""
    if isinstance(error, KeyError) and error.args and error.args[0] not in task:
        return f"; the task has {', '.join(map(str, task))}"
    return ""


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ)
    except BlockingIOError:
        return b""


def _say(line: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the owner is gone, which the end of the input says too
        os.write(OUT, json.dumps(line).encode() + b"\n")


def _surround(url: str) -> None:
    """The environment variables that clients read; no proxy between an agent and its own machine."""
    os.environ |= {"OPENAI_BASE_URL": url, "GIMBAL_BASE_URL": url}
    os.environ.setdefault("OPENAI_API_KEY", "none")
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))


def _kill(process: int) -> None:
    for kill in (os.killpg, os.kill):  # the group is there once it has begun
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)


def _descendants(ancestor: int) -> list[int]:
    """Found through the parents of all processes; not every kernel keeps lists of children."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
    found, waiting = [], [ancestor]
    while waiting:
        parent = waiting.pop()
        theirs = [process for process, above in parents.items() if above == parent]
        found, waiting = found + theirs, waiting + theirs
    return found


def main() -> None:
    program, kind = sys.argv[1:]
    os.dup2(2, 1)  # what the user's module prints when it is imported is no line of ours
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    try:
        function = resolve(program) if kind == "function" else None
    except ValueError as error:
        _say({"failed": str(error)})
        return
    _say({"ready": True})
    host = Starter(program, function)
    try:
        host.run()
    finally:
        host.end()


if __name__ == "__main__":
    main()
