"""A process of its own for code that scores, so that nothing it does can stop, crash or slow the run.

What it gives: a deadline for every call, kept by killing the process (and whatever it started); limits on memory,
open files and file size; an environment without the parent's variables (keys, tokens); no descriptors but its pipe;
death with its parent; where the kernel permits, no network. What it does not give: the file system stays readable and
writable as the user's own. Code that must be assumed hostile belongs in a container or a virtual machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import cloudpickle

START_SECONDS = 120.0  # for the imports of a target, on a machine that is busy with training
REPLY_BYTES = 1 << 24
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONHASHSEED")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Target = Callable[..., Any]


class RewardError(ValueError):
    """A reward that cannot be loaded or does not give scores. It ends the run with one sentence."""


class WorkerError(Exception):
    """A call that gave no value; the text is the rest of a sentence that begins with what was called."""


class Worker:
    """``make`` is sent to the child once and called there; it returns (function, needs). A call of the worker is a
    call of function.

    ``start`` returns at once while the child imports; ``needs`` waits for it. A call that passes ``timeout`` seconds,
    or that ends the process, raises WorkerError; the next call has a fresh process. Arguments are pickled, values are
    whatever JSON can hold. Pickled itself (or copied), a worker is one not yet started.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], tuple[Target, list[str]]],
        *,
        timeout: float,
        memory_gb: float,
        network: bool = True,
        variables: tuple[str, ...] = (),
        directory: Path | None = None,
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout of {name} is {timeout}; it is a number of seconds above 0")
        if memory_gb < 0:
            raise ValueError(f"memory_gb of {name} is {memory_gb}; it is a number of gigabytes, 0 being no limit")
        self.name, self.make, self.timeout, self.memory_gb = name, make, timeout, memory_gb
        self.network, self.variables, self.directory = network, variables, directory
        self._process: subprocess.Popen[bytes] | None = None
        self._needs: list[str] | None = None
        self._late = False

    def __reduce__(self) -> tuple[Callable[[], Worker], tuple[()]]:
        again = partial(
            Worker,
            self.name,
            self.make,
            timeout=self.timeout,
            memory_gb=self.memory_gb,
            network=self.network,
            variables=self.variables,
            directory=self.directory,
        )
        return again, ()

    def start(self) -> None:
        """Start the child unless it runs. It reads its target from a file: a pipe could fill up before it listens."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        try:
            target = cloudpickle.dumps(self.make)
        except Exception as error:  # whatever the pickling of the user's objects raises
            raise RewardError(f"reward {self.name} cannot be sent to its process: {error}") from error
        self._home = TemporaryDirectory(prefix="gimbal-reward-", ignore_cleanup_errors=True)
        home = Path(self._home.name)
        (home / "target").write_bytes(target)
        self._connection, theirs = Pipe()
        memory, network = str(int(self.memory_gb * 2**30)), str(int(self.network))
        arguments = (str(theirs.fileno()), str(os.getpid()), memory, network, str(home / "target"))
        # Held open, so that it can be read whatever the child does to its directory. Appending: the child truncates it.
        self._output = (home / "output").open("a+b")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gimbal.rewards._worker", *arguments],
                pass_fds=[theirs.fileno()],
                cwd=self.directory or home,
                env=self._environment(home),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
            )

    @property
    def needs(self) -> list[str]:
        """What the target said of itself; waits for the child. A target that cannot be made is a RewardError."""
        self.start()
        if self._needs is None:
            try:
                self._needs = self._exchange(None, START_SECONDS)
            except WorkerError as error:
                self.close()
                raise RewardError(f"reward {self.name} could not be loaded: it {error}") from error
        assert self._needs is not None
        return self._needs

    def __call__(self, *arguments: Any) -> Any:
        assert self.needs is not None  # the deadline counts from when the child is ready
        return self._exchange(cloudpickle.dumps(arguments), self.timeout)

    def close(self) -> None:
        if self._process is None:
            return
        self._kill()
        self._process.wait()
        self._connection.close()
        self._output.close()
        self._home.cleanup()
        self._process = self._needs = None

    def _exchange(self, message: bytes | None, seconds: float) -> Any:
        self._late = False
        timer = Timer(seconds, self._expire)
        timer.start()
        try:
            try:
                if message is not None:
                    self._connection.send_bytes(message)
                reply = json.loads(self._connection.recv_bytes(REPLY_BYTES))
            finally:
                timer.cancel()
        except (EOFError, OSError, ValueError) as error:
            raise WorkerError(self._death(seconds)) from error
        except BaseException:  # an interrupt: the reply still to come would be taken for the next call's
            self.close()
            raise
        if "error" in reply:
            raise WorkerError(f"raised {reply['error']} ({reply['where']})")
        return reply["value"]

    def _expire(self) -> None:
        self._late = True
        self._kill()

    def _kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)

    def _death(self, seconds: float) -> str:
        """How the process ended, in words; then it is cleared away."""
        assert self._process is not None
        if not self._late:
            self._kill()  # it may have sent what is no reply, and live on
        code = self._process.wait()
        self._output.seek(0)
        last = self._output.read()[-400:].decode(errors="replace").strip().rpartition("\n")[2]
        self.close()
        if self._late:
            return f"did not return within {seconds:g} seconds and was ended"
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return f"ended its process ({how})" + (f", its last output being: {last}" if last else "")

    def _environment(self, home: Path) -> dict[str, str]:
        kept = {name: os.environ[name] for name in (*KEPT, *self.variables) if name in os.environ}
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        return kept | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": path, "TMPDIR": str(home)}
