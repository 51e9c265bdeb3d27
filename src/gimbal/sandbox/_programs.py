"""What runs inside a contained process and starts programs there: each in a fork of it, ended with all that it started.

It is out of its programs' reach: they can neither look into it nor signal it (a Landlock layer of their own), and hold none
of its descriptors, so they cannot answer in its place. No file of gimbal outside this room is imported here.
"""

from __future__ import annotations

import base64
import ctypes
import io
import os
import resource
import selectors
import signal
import stat
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from gimbal.sandbox import _kernel as kernel
from gimbal.sandbox._confine import DEVICES, PROCESSES, own_proc
from gimbal.sandbox._seccomp import refuse_calls
from gimbal.sandbox._supervisor import close_all_but, end_family, family, proportional, resident

TICK = 0.05  # seconds between two looks at what a program takes
FILE_BYTES = 8 << 20  # of what is read, written or forked at once: answers are JSON
ENVIRONMENT = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PATH = f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FILES_FORKED = 5_000
SHUT = 120  # the exit code of a program that could not be shut in: it did not run


class TooLarge(Exception):
    """More than an answer holds."""


class Programs:
    def __init__(self, memory: int, processes: int, output: int, user: int | None = None) -> None:
        self.memory, self.processes, self.output = memory, processes, output
        self.user = user  # of its programs and their files, where it is not its own
        self.home = os.path.realpath(os.environ["TMPDIR"])
        os.chdir(self.home)
        self.reads: tuple[str, ...] = ()
        self.landlock = True
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # what its programs orphan comes here, to be ended
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # no program of the same user may look into it
        libraries()  # a program that closes everything has them all the same

    def __call__(self, what: str, *arguments: Any) -> Any:
        calls: dict[str, Callable[..., Any]] = {
            "begin": self.begin,
            "exec": self.exec,
            "write": self.write,
            "read": self.read,
            "pack": self.pack,
            "unpack": self.unpack,
        }
        try:
            with nullcontext() if what in ("begin", "exec") else as_user(self.user):
                return {"value": calls[what](*arguments)}
        except TooLarge as error:
            return {"over": str(error)}
        except RecursionError:
            return {"over": "its directories lie too deep in one another to be forked"}
        except OSError as error:
            return {"failed": f"{type(error).__name__}: {error}"}

    def begin(self, reads: Sequence[str], landlock: bool) -> None:
        """What its programs may read, where the machine's own files are in sight; none of that: all that there is."""
        self.reads, self.landlock = tuple(reads), landlock

    def exec(self, program: str | Sequence[str], stdin: bytes, seconds: float) -> dict[str, Any]:
        (given, feed), (out, output), (err, errors) = os.pipe(), os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            self._become(program, given, output, errors)
        for number in (given, output, errors):
            os.close(number)
        watched = _Watched(self, child, feed, stdin, {out: bytearray(), err: bytearray()}, seconds)
        try:
            broke = watched.run()
        finally:
            left = sum(runs(pid) for pid in family() if pid != child)
            code = os.waitstatus_to_exitcode(end_family(child))
            watched.drain()
            watched.close()
        told = {"code": code, "left": left, "broke": broke, "late": time.monotonic() > watched.until}
        said = (base64.b64encode(bytes(watched.kept[number])).decode() for number in (out, err))
        return told | dict(zip(("output", "errors"), said, strict=True))

    def _become(self, program: str | Sequence[str], *streams: int) -> None:
        """The program, in a fork. It does not return."""
        code = 1
        try:
            os.setsid()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            become(self.user)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # its own /proc/self
            close_all_but(-1)
            shut_in(self.memory, self.processes)
            if self.landlock and (version := kernel.landlock_version()):
                layer(version, self.home, self.reads)
            kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
            os.environ.clear()
            os.environ |= kept | {"HOME": self.home, "TMPDIR": self.home, "PATH": PATH, "PYTHONHASHSEED": "0"}
        except BaseException:
            os._exit(SHUT)
        try:
            if not isinstance(program, str):
                for one in (signal.SIGPIPE, signal.SIGXFSZ):  # Python's own choice is not a command's
                    signal.signal(one, signal.SIG_DFL)
                os.execvp(program[0], list(program))
            run_text(program)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        except BaseException as error:
            told(error)
        finally:
            flush()
            os._exit(code & 0xFF)

    def write(self, path: str, content: str) -> None:
        place = self._place(path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666), "wb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(f"{path} is no file")
            file.truncate()
            file.write(base64.b64decode(content))

    def read(self, path: str) -> str:
        with open(os.open(self._place(path), os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise OSError(f"{path} is no file")
            if about.st_size > FILE_BYTES:
                raise TooLarge(f"{path} has {about.st_size:,} bytes; at most {FILE_BYTES:,} are read at once")
            return base64.b64encode(file.read(FILE_BYTES)).decode()

    def _place(self, path: str) -> str:
        """No process runs now that could change what this finds."""
        place = os.path.realpath(os.path.join(self.home, path))
        if not place.startswith(self.home + "/"):
            raise OSError(f"{path} leads out of the working directory")
        return place

    def pack(self) -> str:
        size = count = 0
        for where, below, names in os.walk("."):
            size += sum(os.lstat(os.path.join(where, name)).st_blocks * 512 for name in names)
            count += len(below) + len(names)
            if count > FILES_FORKED:
                raise TooLarge(f"it has more than {FILES_FORKED:,} files, which is the most that can be forked")
        if size > FILE_BYTES:
            raise TooLarge(f"its files take {size:,} bytes; at most {FILE_BYTES:,} can be forked")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            archive.add(".", filter=lambda one: one if one.isreg() or one.isdir() or one.issym() else None)
        return base64.b64encode(packed.getvalue()).decode()

    def unpack(self, packed: str) -> None:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed)), mode="r:gz") as archive:
            archive.extractall(".", filter=lambda one, _: one)  # with the rights of a program, which wrote it


class _Watched:
    """A program under way: what it says, how long it takes, and what it takes of the machine."""

    def __init__(
        self, of: Programs, child: int, feed: int, stdin: bytes, kept: dict[int, bytearray], seconds: float
    ) -> None:
        self.of, self.feed, self.stdin, self.kept, self.ended = of, feed, stdin, kept, False
        self.until = time.monotonic() + seconds
        self.end = os.pidfd_open(child)
        self.selector = selectors.DefaultSelector()
        for number in (*kept, self.end):
            self.selector.register(number, selectors.EVENT_READ)
        for number in (*kept, feed):
            os.set_blocking(number, False)
        self.selector.register(feed, selectors.EVENT_WRITE)

    def run(self) -> str:
        """Until it ends; else the name of the limit that it broke."""
        looked = time.monotonic()
        while not self.ended:
            now = time.monotonic()
            if now > self.until:
                return "deadline"
            if now > looked + TICK:
                looked = now
                if broke := self._takes():
                    return broke
            for key, _ in self.selector.select(min(TICK, self.until - now)):
                if key.fd == self.feed:
                    self._give()
                elif key.fd == self.end:
                    self.ended = True
                else:
                    self._hear(key.fd)
            if sum(map(len, self.kept.values())) > self.of.output:
                return "output"
        return ""

    def _takes(self) -> str:
        pids = family()
        if len(pids) > self.of.processes:
            return "processes"
        # Pages that they share count several times in the first sum, which is cheap.
        over = sum(map(resident, pids)) > self.of.memory and sum(map(proportional, pids)) > self.of.memory
        return "memory" if over else ""

    def _give(self) -> None:
        try:
            self.stdin = self.stdin[os.write(self.feed, self.stdin) if self.stdin else 0 :]
        except BrokenPipeError:  # it does not want to read
            self.stdin = b""
        if not self.stdin:
            self.selector.unregister(self.feed)
            os.close(self.feed)
            self.feed = -1

    def _hear(self, number: int) -> bool:
        try:
            part = os.read(number, 1 << 16)
        except BlockingIOError:
            return False
        if not part and number in self.selector.get_map():
            self.selector.unregister(number)
        self.kept[number] += part
        return bool(part)

    def drain(self) -> None:
        """What is still in the pipes; nobody writes any more."""
        for number in self.kept:
            while self._hear(number):
                continue
            del self.kept[number][self.of.output :]

    def close(self) -> None:
        self.selector.close()
        for number in (*self.kept, self.end, self.feed):
            if number >= 0:
                os.close(number)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def become(user: int | None) -> None:
    """For good, with no more calls of the system than programs have in the other rungs."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        refuse_calls(network=False, hidden_memory=False, metadata=True)


@contextmanager
def as_user(user: int | None) -> Iterator[None]:
    """Files belong to who will use them, and are opened with no more rights than theirs."""
    own = os.geteuid(), os.getegid()
    if user is not None:
        os.setegid(user)
        os.seteuid(user)
    try:
        yield
    finally:
        if user is not None:
            os.seteuid(own[0])
            os.setegid(own[1])


def libraries() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def shut_in(memory: int, processes: int) -> None:
    """Limits of a program's own."""
    for limit, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        had = resource.getrlimit(limit)[1]
        most = most if had == resource.RLIM_INFINITY else min(most, had)
        resource.setrlimit(limit, (most, most))
    had = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if 0 <= had <= PROCESSES:  # else it would count all processes of an ordinary user
        resource.setrlimit(resource.RLIMIT_NPROC, (min(processes, had), min(processes, had)))


def layer(version: int, home: str, reads: Sequence[str]) -> None:
    """A layer more of Landlock: a program can neither trace nor signal what stands outside, such as what serves it. Nothing to
    read: it has a root directory of its own, and a /proc.
    """
    read, written = ((*reads, *own_proc()), (home, *DEVICES)) if reads else (("/",), ("/",))
    kernel.landlock(version, read, written, network=False)


def run_text(program: str) -> None:
    """As python would run it from a file named program.py, without the modules that serve it in its way."""
    for name in [name for name in sys.modules if name == "gimbal" or name.startswith(("gimbal.", "cloudpickle"))]:
        del sys.modules[name]
    roots = tuple({sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, "/usr"})
    sys.path[:] = ["", *(path for path in sys.path if path.startswith(roots))]
    sys.argv[:] = ["program.py"]
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    exec(compile(program, "program.py", "exec"), vars(main))


def told(error: BaseException) -> None:
    """Its traceback, from the program's own lines on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != "program.py":
        frames = frames.tb_next
    try:
        print("".join(traceback.format_exception(type(error), error, frames)), end="", file=sys.stderr)
    except BaseException:  # whatever the program has made of its streams and its exceptions
        os._exit(1)


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # whatever the program put in its place
            continue


def make(memory: int, processes: int, output: int) -> tuple[Programs, list[str]]:
    return Programs(memory, processes, output), []
