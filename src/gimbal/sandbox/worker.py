"""A contained process for untrusted code: nothing it does can stop, crash or slow the run, read what is not its own, or outlive it.

docs/isolation.md lists the promises and the kernel that each needs; ``contained()`` returns which of them hold here. A worker still
runs if the kernel refuses some, and one warning names them.

No kernel protects against this: code executed inside the function's own process can falsify that function's answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from threading import Timer
from typing import Any

import cloudpickle

from gimbal import durable
from gimbal.sandbox import _pickled
from gimbal.sandbox._confine import NONCE, Order, ending
from gimbal.sandbox._granted import accelerators, granted

START_SECONDS = 120.0  # seconds for the imports of a target on a busy machine
END_SECONDS = 5.0  # seconds for everything that a worker started to end
REPLY_BYTES = 1 << 24
MOST_SECONDS, MOST_GB = 10_000_000, 1_000_000  # largest limit, which threads and kernels can count

MESSAGE = 600  # characters of a process's output in a message
PREFIX = "gimbal-sandbox-"
FRESH = 60.0  # age in seconds below which a directory may not be locked yet
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONHASHSEED")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
WITHOUT: tuple[str, ...] = ()  # steps of _confine.py and _supervisor.py that tests leave out, as other kernels do

Target = Callable[..., Any]


class TargetError(ValueError):
    """A function that cannot be sent to its process, or cannot be loaded there."""


class WorkerError(Exception):
    """A call without a value; the message gives the reason, after the name of what was called and a colon."""


@cache
def contained() -> dict[str, bool]:
    """Each promise, and whether it holds on this machine (docs/isolation.md). Starts a worker."""
    worker = Worker("contained", lambda: (bool, []), timeout=START_SECONDS, memory_gb=1.0, network=False)
    assert worker.needs == []
    lacking = worker.lacking
    worker.close()
    return promises(lacking)


def promises(lacking: Mapping[str, str]) -> dict[str, bool]:
    """The promises of docs/isolation.md, from the steps that a worker could not take."""
    linux, apart = sys.platform == "linux", "namespaces" not in lacking
    landlock = "landlock" not in lacking
    return {
        "it reads and writes only what is granted to it": apart or landlock,
        "all that it writes has a limit, and goes with it": apart,
        "it cannot see, signal or trace other processes": apart
        or "user" not in lacking
        or (landlock and "signals" not in lacking),
        "all that it starts ends with it": linux and (apart or "children" not in lacking),
        "its memory is limited in total": linux and "children" not in lacking,
        "its processes are limited in number": apart or "user" not in lacking,
        "it has no privileges and gains none": not {"privileges", "capabilities", "calls"} & set(lacking),
        "it has no network where it is to have none": apart or "calls" not in lacking,
    }


@cache
def _warn(missing: tuple[str, ...], why: tuple[str, ...]) -> None:
    warnings.warn(
        f"code is less isolated on this machine. These promises do not hold: {'; '.join(missing)}. The "
        f"kernel's reasons: {'; '.join(why)}. See docs/isolation.md for what each needs",
        RuntimeWarning,
        stacklevel=3,
    )


class Worker:
    """``make`` is sent to the child once and called there; it returns (function, needs). Calling the worker calls the function.

    ``start`` returns at once while the child imports; ``needs`` waits for it. A call that takes longer than ``timeout`` seconds, or
    that ends the process, raises WorkerError; the next call gets a fresh process. Arguments are pickled; values are any JSON. A pickled
    or copied worker is not started. ``imports``: the trainer's imports can be read and imported there too. ``within``: a command that
    starts the process in an existing namespace and root directory.
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
        reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
        raises: type[ValueError] = TargetError,
        imports: bool = True,
        within: Callable[[Order], list[str]] | None = None,
    ) -> None:
        if not 0 < timeout < MOST_SECONDS:
            raise ValueError(
                f"timeout of {name} is {timeout}; it must be a number of seconds above 0 and below {MOST_SECONDS:,}"
            )
        if not 0 <= memory_gb < MOST_GB:
            raise ValueError(
                f"memory_gb of {name} is {memory_gb}; it must be a number of gigabytes below {MOST_GB:,}, 0 being no limit"
            )
        self.name, self.make, self.timeout, self.memory_gb = name, make, timeout, memory_gb
        self.network, self.variables, self.directory = network, variables, directory
        self.reads, self.writes, self.raises = reads, writes, raises
        self.imports, self.within = imports, within
        self.lacking: dict[str, str] = {}  # the steps of its containment that were not taken, and why; after ``needs``
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
            reads=self.reads,
            writes=self.writes,
            raises=self.raises,
            imports=self.imports,
            within=self.within,
        )
        return again, ()

    def start(self) -> None:
        """Start the child unless it runs. It reads its target from a file: a pipe could fill up before it listens."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        try:
            target = _pickled.dumps(self.make)
        except Exception as error:  # whatever the pickling of the user's objects raises
            raise self.raises(f"{self.name} cannot be sent to its process: {error}") from error
        reads, writes = self._grants()
        _sweep()
        self._home = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(self._home, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)  # the supervisor keeps it: see _sweep
        for name in ("target", "order", "output"):
            (self._home / name).touch(mode=0o600)
        (self._home / "scratch").mkdir()
        self._home.chmod(0o711)  # the scratch directory may become another user's
        with durable.named(self._home / "target"):
            (self._home / "target").write_bytes(target)
        self._connection, theirs = Pipe()
        self._verdict, verdict = os.pipe()
        passed = (theirs.fileno(), verdict, lock)
        order = self._order(*passed, reads, writes)
        with durable.named(self._home / "order"):
            (self._home / "order").write_text(order.dumps())
        before = [] if self.within is None else self.within(order)
        # Held open, so that it can be read whatever the child does to its directory. Appending: the child truncates it.
        self._output = (self._home / "output").open("a+b")
        self._process = subprocess.Popen(
            [*before, os.path.abspath(sys.executable), "-P", "-m", "gimbal.sandbox._worker", str(self._home / "order")],
            pass_fds=passed,
            cwd=self._home,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        theirs.close()
        os.close(verdict)
        os.close(lock)

    def _grants(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """``reads`` and ``writes`` as absolute paths."""
        reads, writes = (
            tuple(os.path.abspath(os.path.expanduser(path)) for path in paths) for paths in (self.reads, self.writes)
        )
        for path in (*reads, *writes):
            if not os.path.exists(path):
                raise self.raises(f"{self.name} is granted {path}, which does not exist: create it before the run")
        return reads, writes

    def _order(
        self, connection: int, verdict: int, lock: int, reads: tuple[str, ...], writes: tuple[str, ...]
    ) -> Order:
        scratch = str(self._home / "scratch")
        return Order(
            connection=connection,
            verdict=verdict,
            lock=lock,
            parent=1 if self.within else os.getpid(),  # in a PID namespace that another program made
            target=str(self._home / "target"),
            memory=int(self.memory_gb * 2**30),
            network=self.network,
            scratch=scratch,
            directory=str(self.directory or scratch),
            reads=granted([*reads, *([str(self.directory)] if self.directory else [])], imports=self.imports),
            writes=(*writes, *(() if self.memory_gb else accelerators())),  # no limit: as a GPU needs it
            serves=not self.imports,
            within=self.within is not None,
            without=WITHOUT,
        )

    @property
    def needs(self) -> list[str]:
        """What the target reported about itself; waits for the child. Raises ``raises`` if the target cannot be made."""
        self.start()
        if self._needs is None:
            try:
                self._needs = self._exchange(None, START_SECONDS)
            except WorkerError as error:
                self.close()
                raise self.raises(f"{self.name} could not be loaded: {error}") from error
            held = promises(self.lacking)
            if missing := tuple(promise for promise, holds in held.items() if not holds):
                _warn(missing, tuple(f"{step}: {why}" for step, why in self.lacking.items()))
        assert self._needs is not None
        return self._needs

    def __call__(self, *arguments: Any) -> Any:
        self._refresh()
        assert self.needs is not None  # the deadline counts from when the child is ready
        return self._exchange(cloudpickle.dumps(arguments), self.timeout)

    def _refresh(self) -> None:
        """Replace a child that has died since the last call; reject one that sent an unrequested answer."""
        if self._process is None or self._needs is None or not self._connection.poll():
            return
        with socket.socket(fileno=os.dup(self._connection.fileno())) as peeked:
            try:
                ended = not peeked.recv(1, socket.MSG_PEEK)
            except ConnectionError:
                ended = True
        self.close()
        if not ended:
            raise WorkerError("it answered a call that nobody made, and was ended")

    @property
    def alive(self) -> bool:
        """Whether the process of the last call will answer the next one, and has sent nothing unrequested."""
        return self._process is not None and self._process.poll() is None and not self._connection.poll()

    def close(self) -> None:
        if self._process is None:
            return
        self._kill()
        if not self._wait():  # it is stopped, or waits for a disk
            self._process.kill()
            self._process.wait()
        self._connection.close()
        os.close(self._verdict)
        self._output.close()
        shutil.rmtree(self._home, ignore_errors=True)
        self._process = self._needs = None

    def _exchange(self, arguments: bytes | None, seconds: float) -> Any:
        self._late = False
        nonce = secrets.token_bytes(NONCE)
        timer = Timer(seconds, self._expire)
        timer.start()
        try:
            try:
                if arguments is None:
                    self.lacking = json.loads(self._connection.recv_bytes(REPLY_BYTES))
                else:
                    self._connection.send_bytes(nonce + arguments)
                reply = json.loads(self._connection.recv_bytes(REPLY_BYTES))
            finally:
                timer.cancel()
        except (EOFError, OSError, ValueError, RecursionError) as error:
            ended = isinstance(error, EOFError | ConnectionError)
            raise WorkerError(self._death(seconds, ended)) from error
        except BaseException:  # interrupted: the outstanding reply would be taken for the next call's
            self.close()
            raise
        # A process that handled a model's text may reply anything, so nothing about its reply is trusted.
        if not isinstance(reply, dict) or reply.get("nonce") != ("" if arguments is None else nonce.hex()):
            self.close()
            raise WorkerError("it answered another call than it was asked, and was ended")
        if "refused" in reply:
            raise WorkerError(_plain(reply["refused"]))
        if "error" in reply:
            raise WorkerError(f"it raised {_plain(reply['error'])} ({_plain(reply.get('where'))})")
        return reply.get("value")

    def _expire(self) -> None:
        self._late = True
        self._kill()

    def _kill(self) -> None:
        assert self._process is not None
        if sys.platform == "linux" and self.within is None:  # the supervisor ends everything
            self._process.terminate()
            return
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)

    def _wait(self, seconds: float = END_SECONDS) -> bool:
        """Whether it ended in time. Its end of the pipe is watched: Popen.wait with a time would sleep and look again."""
        assert self._process is not None
        if not wait([self._verdict], seconds):
            return False
        self._process.wait()
        return True

    def _death(self, seconds: float, ended: bool) -> str:
        """How the process ended, in words; then it is cleared away. ``ended``: so it seems, and it is the supervisor's
        to see; else it has sent what is no reply, and lives on.
        """
        assert self._process is not None
        if self._late or not ended or not self._wait(1.0):
            self._kill()
            self._wait()
        os.set_blocking(self._verdict, False)
        said = ""
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._verdict, MESSAGE).decode(errors="replace")
        if not said and ended and (sys.platform != "linux" or self.within is not None):
            said = ending(self._process.returncode)
        said = said or "sent an invalid answer, and was ended"
        self._output.seek(0)
        last = _plain(self._output.read()[-400:].decode(errors="replace").strip().rpartition("\n")[2])
        self.close()
        if self._late:
            return f"it did not return within {seconds:g} seconds and was ended"
        return f"it {said}" + (f", its last output being: {last}" if last else "")

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in (*KEPT, *self.variables) if name in os.environ}
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        # USER: where it runs under a number that no name belongs to, libraries would fail to look one up.
        start = {"USER": "sandbox"} | dict.fromkeys(THREADS, "1")
        # Where only this Python is imported, programs are to do the same again: sets in the same order.
        start |= {} if self.imports else {"PYTHONHASHSEED": "0"}
        return kept | start | {"PYTHONPATH": path, "TMPDIR": str(self._home / "scratch")}


def _plain(text: Any) -> str:
    """Text that may be a model's, made safe for a terminal: no control characters, and not too long."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:MESSAGE])


@cache
def _sweep() -> None:
    """Remove the directories of workers that were killed together with their trainers and supervisors: nobody has them
    locked. Once per process.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another's, in use, or gone
            if path.stat().st_uid != os.geteuid() or time.time() - path.stat().st_mtime < FRESH:
                continue
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
