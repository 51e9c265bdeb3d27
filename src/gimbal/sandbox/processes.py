"""The rungs that run real programs: a contained process that starts them, behind the interface of a sandbox."""

from __future__ import annotations

import base64
import os
import shutil
import sys
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import cloudpickle

from gimbal.sandbox._confine import DISK_BYTES, Order, mounts
from gimbal.sandbox._granted import granted
from gimbal.sandbox._programs import SHUT, make
from gimbal.sandbox.base import AbstractSandboxSpec, checked, unavailable
from gimbal.sandbox.live import (
    DEADLINE,
    MEMORY,
    MOST_SECONDS,
    OUTPUT,
    PROCESSES,
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
from gimbal.sandbox.worker import TargetError, Worker, WorkerError

SERVES_GB = 0.25  # beside what its programs may take, for what starts them
GRACE = 10.0  # seconds past a program's deadline in which what starts it must have said so
TREE = Path(__file__).parents[1]
READS = (str(TREE / "sandbox"), str(TREE / "__init__.py"), str(Path(cloudpickle.__file__).parent))


@dataclass(frozen=True, kw_only=True)
class AbstractProcesses(AbstractSandboxSpec):
    """Limits of one program: seconds, GB of memory in all its processes, how many these are, characters that it says."""

    timeout: float = 5.0
    memory_gb: float = 0.5
    processes: int = 32
    output: int = 65_536

    def __post_init__(self) -> None:
        checked(self, ("timeout", self.timeout, MOST_SECONDS), ("memory_gb", self.memory_gb, 1024))
        checked(self, ("processes", self.processes, 128), ("output", self.output, 1 << 20))

    @abstractmethod
    def server(self) -> ProgramServer:
        """A new one of the process that starts its programs. Raises Unavailable."""

    def start(self) -> Contained:
        return Contained(self)


class ProgramServer(Protocol):
    """What starts programs: ``_programs.Programs``, called from outside. A ``Worker`` is one."""

    timeout: float
    lacking: dict[str, str]  # promises of docs/isolation.md that this machine does not keep

    @property
    def needs(self) -> list[str]: ...

    @property
    def alive(self) -> bool: ...

    def __call__(self, *arguments: Any) -> Any: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class AbstractHere(AbstractProcesses):
    """By this machine's own Python and programs."""

    def missing(self) -> str:
        if sys.platform != "linux":
            return f"{type(self).__name__} needs Linux, and this is {sys.platform}: choose Monty()"
        return unavailable(self.within)

    @abstractmethod
    def within(self) -> Callable[[Order], list[str]] | None:
        """The command in which its process starts; None: it needs none. Raises Unavailable."""

    def server(self) -> Worker:
        limits = (int(self.memory_gb * 2**30), self.processes, self.output)
        worker = Worker(
            type(self).__name__,
            partial(make, *limits),
            timeout=self.timeout + GRACE,
            memory_gb=self.memory_gb + SERVES_GB,
            network=False,
            reads=READS,
            imports=False,
            within=self.within(),
        )
        worker.start()
        return worker


@dataclass(frozen=True, kw_only=True)
class Landlock(AbstractHere):
    """Python programs and commands under Linux's own mechanisms, without any package: namespaces where they are allowed,
    Landlock, a filter of system calls, limits, as root another user.

    Files last from call to call; each program is a new process. It is run as it is in a fork of a Python that has started, so
    a call takes milliseconds. A program sees the system's programs, this Python with its packages, and its own directory;
    nothing of the run, and no network.
    """

    def within(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Bubblewrap(AbstractHere):
    """As Landlock, in the namespaces that ``bwrap`` makes: for machines that let this program make them, and no other.

    ``program`` names it, or its place.
    """

    program: str = "bwrap"

    def within(self) -> Callable[[Order], list[str]]:
        if (found := shutil.which(self.program)) is None:
            raise Unavailable(
                f"Bubblewrap needs the program {self.program}, which is not installed: apt install bubblewrap, or choose Landlock()"
            )
        return partial(_bubble, found)


def _bubble(program: str, order: Order) -> list[str]:
    """bwrap's arguments. Root keeps its rights until it has become another user, which _confine.py does with them."""
    root = os.geteuid() == 0
    command = [
        program,
        *(["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"] if root else ["--unshare-all"]),
    ]
    command += ["--cap-add", "ALL"] if root else []
    command += ["--proc", "/proc", "--dev", "/dev"]
    for path in ("/tmp", "/dev/shm"):
        command += ["--perms", "1777", "--size", str(DISK_BYTES), "--tmpfs", path]
    home, made = str(Path(order.target).parent), {"/", "/dev", "/tmp", "/dev/shm"}
    for path, writable in [*mounts(order).items(), (home, None)]:  # after what they may lie in
        for above in reversed(Path(path).parents):  # bwrap itself makes them for its own user alone
            command += ["--perms", "0755", "--dir", str(above)] if str(above) not in made else []
            made.add(str(above))
        made.add(path)
        command += ["--perms", "0755", "--dir", path] if writable is None else []
        command += ["--dev-bind" if writable else "--ro-bind", path, path] if writable is not None else []
    command += ["--size", str(DISK_BYTES), "--tmpfs", order.scratch]
    for path in (order.target, f"{home}/order"):
        command += ["--ro-bind", path, path]
    return [*command, "--chdir", home, "--"]


class Contained(AbstractSandbox):
    """One contained process, which starts programs in forks of itself."""

    def __init__(self, spec: AbstractProcesses) -> None:
        if wrong := spec.missing():
            raise Unavailable(wrong)
        self.spec, self.lost, self.asked = spec, "", False
        self.worker = spec.server()

    def exec(self, program: Program, *, stdin: str = "", seconds: float | None = None) -> Outcome:
        seconds = allowed(self.spec.timeout if seconds is None else seconds)
        what = program if isinstance(program, str) else list(map(str, program))
        if what == []:
            raise ValueError("the command is empty; expected a program and its arguments: ['ls', '-l']")
        self.worker.timeout = seconds + GRACE
        said = self._ask("exec", what, stdin.encode(errors="replace"), seconds)
        if said["broke"]:
            spec, broke = self.spec, said["broke"]
            most = {DEADLINE: seconds, MEMORY: spec.memory_gb, PROCESSES: spec.processes, OUTPUT: spec.output}
            raise OverLimit.of(broke, most[broke])
        if said["code"] == SHUT and not said["output"] and not said["errors"]:
            raise Unavailable("the program was not run, for it could not be shut in")
        output, errors = (base64.b64decode(said[name]).decode(errors="replace") for name in ("output", "errors"))
        return Outcome(code=said["code"], output=output, errors=errors, left=said["left"])

    def write(self, path: str, content: bytes) -> None:
        self._ask("write", inside(path), base64.b64encode(content).decode())

    def read(self, path: str) -> bytes:
        return base64.b64decode(self._ask("read", inside(path)))

    def fork(self) -> Contained:
        packed = self._ask("pack")
        other = Contained(self.spec)
        other._ask("unpack", packed)
        return other

    def close(self) -> None:
        self._lose(self.lost or "was closed")

    def _ask(self, what: str, *arguments: Any) -> Any:
        """What the contained process answers. It does nothing by itself, so one that ends has been ended."""
        if self.lost:
            raise Lost(f"{self.lost}; its files are gone: open another")
        try:
            if not self.asked and self.worker.needs != []:
                raise WorkerError("it answered what nobody asked")
            if not self.asked and "namespaces" in self.worker.lacking:
                self.worker("begin", granted(READS, imports=False), "landlock" not in self.worker.lacking)
            if "children" in self.worker.lacking:
                raise WorkerError(f"what a program leaves could not be ended: {self.worker.lacking['children']}")
            if self.asked and not self.worker.alive:  # else the worker would start afresh, without the files
                raise WorkerError("it has ended between two calls")
            self.asked = True
            answer = self.worker(what, *arguments)
        except TargetError as error:
            self._lose(str(error))
            raise Unavailable(str(error)) from error
        except WorkerError as error:
            self._lose(f"was lost: {error}")
            raise Lost(f"{self.lost}; its files are gone: open another") from error
        if "value" in answer:
            return answer["value"]
        if "over" in answer:
            raise OverLimit(SIZE, answer["over"])
        if what != "exec":
            raise OSError(answer["failed"])
        self._lose(f"could not start a program: {answer['failed']}")
        raise Lost(f"{self.lost}; its files are gone: open another")

    def _lose(self, why: str) -> None:
        self.lost = why
        self.worker.close()
