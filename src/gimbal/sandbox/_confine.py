"""How a sandboxed process confines itself: a root directory of its own, then no rights, then limits.

Each step that the kernel refuses is left out and named in what ``confine`` returns; worker.py says what holds then.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Container
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gimbal.sandbox import _kernel as kernel
from gimbal.sandbox._seccomp import refuse_calls

FILES = 256  # open at once
FILE_BYTES = 1 << 28  # largest file it may write
DISK_BYTES = 1 << 29  # all files together, where it has a root directory of its own
PROCESSES = 256  # and threads, at once
NONCE = 16  # bytes before each call, and again in its answer: only who was asked can have it
FIRST_UID, UIDS = 61000, 4000  # nobody's, as a rule: of these one is used where the trainer is root
LANDLOCK_SINCE = 3  # before, what may be read may be emptied too
SIGNALS_SINCE = 6
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Of /proc where it is the machine's own; others' command lines are in the rest.
PROC = ("self", "cpuinfo", "meminfo", "stat", "filesystems", "sys/kernel/osrelease", "sys/vm/overcommit_memory")


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a worker's process is told at its start, as JSON in the file that its one argument names."""

    connection: int  # descriptors
    verdict: int
    lock: int
    parent: int
    target: str
    memory: int  # bytes of all its processes, 0 being no limit
    network: bool
    scratch: str  # the directory that it may write
    directory: str  # the one it starts in
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    serves: bool = False  # it starts programs, and shuts each of them in itself
    within: bool = False  # namespaces and a root directory of its own are made already
    without: tuple[str, ...] = ()  # steps to leave out, as on a kernel that lacks them

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Order:
        values: dict[str, Any] = json.loads(text)
        lists: dict[str, Any] = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return Order(**(values | lists))


def own_root(order: Order) -> None:
    """In a fresh PID namespace: a root directory in memory, in which there is what the order grants and nothing else."""
    kernel.call("unshare", kernel.CLONE_NEWNS)
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    os.umask(0o022)
    root = order.scratch  # any directory would do: it is seen only from here
    options = f"size={DISK_BYTES},mode=755"
    kernel.mount("gimbal", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    there = mounts(order)
    for path, writable in there.items():
        _bind(path, root + path, writable)
    for path in ("/tmp", "/dev/shm", "/proc"):
        os.makedirs(root + path, exist_ok=True)
    if _nearest(order.scratch, there) is not None:
        kernel.mount("gimbal", root + order.scratch, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    else:
        os.makedirs(root + order.scratch)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", root + "/proc", "proc", flags)
    os.chdir(root)
    kernel.call("pivot_root", b".", b".")
    kernel.call("umount2", b".", kernel.MNT_DETACH)
    os.chdir("/")
    with contextlib.suppress(OSError):  # it would lie in what is mounted read-only
        os.makedirs(os.path.expanduser("~"), exist_ok=True)


def mounts(order: Order) -> dict[str, bool]:
    """Every path to mount and whether it may be written, a directory before what is in it; one that another brings with
    it is left out.
    """
    granted = [(path, False) for path in order.reads] + [(path, True) for path in (*order.writes, *DEVICES)]
    # As it is spelled, and where links lead to: both are opened.
    paths = {(place, writable) for path, writable in granted for place in (path, os.path.realpath(path))}
    chosen: dict[str, bool] = {}
    for path, writable in sorted(paths):
        above = _nearest(path, chosen)
        # Below another mount, a link of the path's own leads to where the other spelling is mounted.
        if os.path.exists(path) and (above is None or (chosen[above] != writable and path == os.path.realpath(path))):
            chosen[path] = writable
    return chosen


def _nearest(path: str, places: Container[str]) -> str | None:
    """The deepest of the places that the path is or lies in."""
    while path not in places:
        if path == "/":
            return None
        path = os.path.dirname(path)
    return path


def _bind(source: str, target: str, writable: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        Path(target).touch()
    kernel.mount(source, target, "", kernel.MS_BIND | kernel.MS_REC)
    if not writable:
        kernel.read_only(target)


def confine(order: Order, *, uid: int, rooted: bool, own_user: bool) -> dict[str, str]:
    """Give up what an order does not grant. Returns the steps that could not be taken, and why.

    ``rooted``: own_root() held, and a PID namespace. ``own_user``: so did a user namespace.
    """
    refused: dict[str, str] = {}

    def step(name: str, action: Callable[[], None]) -> None:
        try:
            if name in order.without:
                raise OSError("left out")
            action()
        except OSError as error:
            refused[name] = str(error)

    if sys.platform != "linux":
        _limit(order, processes=False)
        return dict.fromkeys(("capabilities", "privileges", "landlock", "calls"), f"{sys.platform} has none")
    if os.geteuid() == 0 and not own_user:
        step("user", lambda: _become_nobody(order, uid, rooted))
    else:
        refused["user"] = "only root can"
    _limit(order, processes=own_user or os.geteuid() == uid)
    step("capabilities", kernel.drop_capabilities)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # a change of user took it: its own /proc/self would be root's
    step("privileges", lambda: kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1))
    step("landlock", lambda: _landlock(order, rooted))
    if kernel.landlock_version() < SIGNALS_SINCE:
        refused["signals"] = (
            f"Landlock has version {kernel.landlock_version()} here; signals are its since {SIGNALS_SINCE}"
        )
    step("calls", lambda: refuse_calls(network=order.network, hidden_memory=not order.memory, metadata=rooted))
    return refused


def _landlock(order: Order, rooted: bool) -> None:
    version = kernel.landlock_version()
    if version < LANDLOCK_SINCE:
        raise OSError(f"Landlock has version {version} here, and {LANDLOCK_SINCE} is the first to do")
    writes = [order.scratch, *order.writes, *DEVICES]
    if rooted:  # what else there was is gone
        reads = ["/"]
        writes += ["/tmp", "/dev/shm", os.path.expanduser("~")]
    else:
        # What starts programs must see them; they themselves do not see the rest of /proc: shut_in.
        reads = [*order.reads, *(["/proc"] if order.serves else own_proc())]
    kernel.landlock(version, reads, writes, order.network)


def own_proc() -> list[str]:
    return [f"/proc/{name}" for name in PROC]


def _become_nobody(order: Order, uid: int, rooted: bool) -> None:
    """As root: a user of no one's, if that one can do what the order grants."""
    if written := [path for path in order.writes if not path.startswith("/dev/")]:
        # The next worker is somebody else, who could not continue with these files.
        raise OSError(f"what it writes to {written[0]} is to be root's")
    wanted = [(path, os.R_OK) for path in order.reads]
    wanted += [(sys.executable, os.X_OK), (__file__, os.R_OK), (order.directory, os.X_OK)]
    wanted += [(os.path.dirname(order.scratch), os.X_OK)]
    wanted = [(path, how) for path, how in wanted if os.path.exists(path)]
    os.setgroups([])
    os.setegid(uid)
    os.seteuid(uid)
    barred = [path for path, how in wanted if not os.access(path, how, effective_ids=True)]
    os.seteuid(0)
    os.setegid(0)
    if barred:
        raise OSError(f"only root can open {barred[0]}")
    os.chown(order.scratch, uid, uid)
    for path in ("/tmp", "/dev/shm", os.path.expanduser("~")) if rooted else ():
        if os.path.isdir(path) and os.stat(path).st_dev == os.stat("/").st_dev:  # in memory
            os.chown(path, uid, uid)
    kernel.drop_bounding()
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _limit(order: Order, *, processes: bool) -> None:
    limits = {resource.RLIMIT_NOFILE: FILES, resource.RLIMIT_FSIZE: FILE_BYTES, resource.RLIMIT_CORE: 0}
    if order.memory:
        limits[resource.RLIMIT_AS] = order.memory
    if processes:
        limits[resource.RLIMIT_NPROC] = PROCESSES
    for limit, value in limits.items():
        most = resource.getrlimit(limit)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (value, value))


def ending(code: int) -> str:
    """How a process ended, from its exit code, in words that follow "it"."""
    names = {number.value: number.name for number in signal.Signals}  # not all have one
    how = f"exit code {code}" if code >= 0 else f"signal {names.get(-code, -code)}"
    return f"ended its process ({how})"
