"""An environment in a process of its own, so that several are stepped at once."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cached_property
from multiprocessing.connection import Pipe
from typing import Any

from gimbal.sandbox._confine import ending

END_SECONDS = 5.0  # seconds for an environment to close
# It finds what this process finds, and its own programs have the variables of this one.
START = "import json, sys; sys.path = json.loads(sys.argv.pop(1)); from gimbal.environments._apart import main; main()"


class Elsewhere(Exception):
    """What went wrong in the process, in words that follow the name of a call."""


class Apart:
    """Stands for an environment with gymnasium's interface whose calls are made in a process of its own (``_apart.py``).

    It returns at once, while the process starts; the spaces wait for it. ``ask`` sends a call ahead, whose answer the same call by name
    then waits for: those who ask several first have them answered side by side. Of an info only what gimbal reads comes back.

    The process is in a session of its own, so Ctrl-C does not reach it, and it is killed with all that it started when this side closes
    the pipe that only this side holds open: by ``kill``, as this object goes, or as this process ends, however it does.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._asked = False
        self._connection, theirs = Pipe()
        lifeline, ours = os.pipe()
        self._lifeline = os.fdopen(ours, "wb")  # closed with this object
        numbers, path = (theirs.fileno(), lifeline), json.dumps([*map(os.path.abspath, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, path, source, *map(str, numbers)],
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        os.close(lifeline)

    def __deepcopy__(self, memo: Any) -> Any:
        raise NotImplementedError("it is in a process of its own")

    @cached_property
    def spaces(self) -> tuple[Any, Any]:
        """What it shows and what it takes; ValueError, as in this process, where there is no such environment."""
        try:
            return self._answer()
        except (Elsewhere, ValueError) as error:
            self.kill()
            raise ValueError(f"{self.source} {error}" if isinstance(error, Elsewhere) else str(error)) from error

    def ask(self, call: str, given: Any) -> None:
        """Send a call ahead; nothing is done where one was."""
        if self._asked:
            return
        self._asked = True
        with suppress(OSError):  # it has died: its answer will say so
            self._connection.send_bytes(pickle.dumps((call, given)))

    def reset(self, *, seed: int) -> Any:
        self.ask("reset", seed)
        return self._answer()

    def step(self, does: Any) -> Any:
        self.ask("step", does)
        return self._answer()

    def _answer(self) -> Any:
        try:
            raised, value = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise Elsewhere(self._ended()) from error
        self._asked = False
        if raised:
            raise value
        return value

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            return ending(self._process.wait(END_SECONDS))
        return "closed its end of the pipe"

    def kill(self) -> None:
        """End it now, with all that it started; who waits for an answer gets an error."""
        if self._process.returncode is None:  # else the number may be another's by now
            with suppress(ProcessLookupError, PermissionError):  # it has ended
                os.killpg(self._process.pid, signal.SIGKILL)
        self._lifeline.close()
        with suppress(subprocess.TimeoutExpired):  # it waits for a disk
            self._process.wait(END_SECONDS)

    def close(self) -> None:
        """End it once its environment has closed, or has had the time for that."""
        if not self._asked:  # else it is in the middle of a call
            self.ask("close", None)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        self.kill()
