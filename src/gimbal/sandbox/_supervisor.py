"""Between the trainer and a sandboxed process: it starts that process apart from everything else, watches what all
that descends from it takes, and ends all of it with the trainer, however the trainer ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from gimbal.sandbox import _kernel as kernel
from gimbal.sandbox._confine import FIRST_UID, PROCESSES, UIDS, Order, confine, ending, own_root

TICK = 0.1  # seconds from one look to the next
PAGE = os.sysconf("SC_PAGE_SIZE")
READY, FAILED = b"ready", b"fails"  # of one length
SIGNALS = (signal.SIGCHLD, signal.SIGTERM)

Serve = Callable[[Order, dict[str, str]], None]


def supervise(order: Order, serve: Serve) -> None:
    """Until the process ends, passes a limit, the trainer says SIGTERM or is gone. Then nothing of it is left."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # without a PID namespace, what is orphaned comes here
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child, status = _launch(order, serve)
    os.close(order.connection)
    try:
        said = _watch(order, child)
    finally:
        end_family(child)
    if status is not None and (told := os.read(status, 100)):
        said = ending(os.waitstatus_to_exitcode(int(told)))
    with contextlib.suppress(BrokenPipeError):  # nobody is left to read it
        os.write(order.verdict, said.encode())
    if os.getppid() != order.parent:
        shutil.rmtree(Path(order.scratch).parent, ignore_errors=True)
    os._exit(0)  # the interpreter's own farewell takes longer than all of this


def _launch(order: Order, serve: Serve) -> tuple[int, int | None]:
    """The process to watch; if it is the first of a namespace, also the pipe that tells how the sandboxed one ended."""
    supervisor = os.getpid()  # in another's namespace it is the same for all
    uid = FIRST_UID + (zlib.crc32(order.scratch.encode()) if order.within else supervisor) % UIDS
    apart = kernel.CLONE_NEWPID | kernel.CLONE_NEWIPC | (0 if order.network else kernel.CLONE_NEWNET)
    why = "left out"
    # Root needs no user namespace; in a container that has taken root's rights away it may still have one.
    for own_user in (False, True) if "namespaces" not in order.without and not order.within else ():
        status, theirs = os.pipe()
        ids = os.geteuid(), os.getegid()
        try:
            child = kernel.clone(apart | (kernel.CLONE_NEWUSER if own_user else 0))
        except OSError as error:
            child, why = -1, str(error)
        if child == 0:
            os.close(status)
            _first(order, serve, theirs, uid, ids if own_user else None)
        os.close(theirs)
        if child > 0:
            # No more than the word: the sandboxed process may have ended by now, which is told by the same pipe.
            if os.read(status, len(READY)) == READY:
                return child, status
            why = os.read(status, 1000).decode()
            os.waitpid(child, 0)
        os.close(status)
    child = os.fork()
    if child == 0 and order.within:
        _run(order, serve, {}, uid, rooted=True, own_user=os.geteuid() != 0)
    if child == 0:
        _run(order, serve, {"namespaces": why}, uid, parent=supervisor)
    return child, None


def _first(order: Order, serve: Serve, status: int, uid: int, ids: tuple[int, int] | None) -> None:
    """The first process of a PID namespace, with which all others end. It runs nothing else: signals by default do not
    reach the first process, and one that crashes must end.
    """
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if ids is not None:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{ids[0]} {ids[0]} 1")
            Path("/proc/self/gid_map").write_text(f"{ids[1]} {ids[1]} 1")
        own_root(order)
        child = os.fork()
        if child == 0:
            _run(order, serve, {}, uid, rooted=True, own_user=ids is not None)
        close_all_but(status)
        os.write(status, READY)
        while True:
            pid, how = os.wait()
            if pid == child:
                os.write(status, str(how).encode())
                os._exit(0)
    except OSError as error:
        os.write(status, FAILED + str(error)[:1000].encode())
    finally:
        os._exit(1)


def _run(
    order: Order,
    serve: Serve,
    lacking: dict[str, str],
    uid: int,
    parent: int = 0,
    rooted: bool = False,
    own_user: bool = False,
) -> None:
    """The sandboxed process, from its first moment to its last."""
    code = 1
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        close_all_but(order.connection)  # one of a directory would lead out of any root
        if not os.path.exists("/proc/thread-self/children"):
            lacking["children"] = "the kernel was built without lists of children"
        lacking |= confine(order, uid=uid, rooted=rooted, own_user=own_user)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # here, because a change of user takes it back
        if not rooted and os.getppid() != parent:  # it ended before
            return
        serve(order, lacking)
        code = 0
    except BaseException:
        traceback.print_exc()  # its last line is in the trainer's sentence
    finally:
        os._exit(code)


def close_all_but(kept: int) -> None:
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != kept:
            with contextlib.suppress(OSError):  # it was that of the listing
                os.close(number)


def _watch(order: Order, child: int) -> str:
    """Until there is a reason to end it, in words that follow "it"; "" where there is nobody to tell."""
    while True:
        heard = signal.sigtimedwait(SIGNALS, TICK)
        for pid, how in _ended():
            if pid == child:
                return ending(os.waitstatus_to_exitcode(how))
        if os.getppid() != order.parent or (heard is not None and heard.si_signo == signal.SIGTERM):
            return ""
        pids = family()
        if len(pids) > PROCESSES:
            return f"had {len(pids)} processes, more than {PROCESSES}, and was ended"
        if order.memory and sum(map(resident, pids)) > order.memory:  # pages that they share count several times
            used = sum(map(proportional, pids))
            if used > order.memory:
                most = order.memory / 2**30
                return f"used {used / 2**30:.2g} GB in {len(pids)} processes, more than {most:.2g}, and was ended"


def end_family(child: int) -> int:
    """Of a namespace, all ends with its first process. Else what descends from this one is looked for until none is left.
    Returns how the child ended, as waitpid says it.
    """
    how = 0
    while True:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                how = ended[1] if ended[0] == child else how
        except ChildProcessError:
            return how
        for pid in family() or [child]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _ended() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def family() -> list[int]:
    """All that descend from this process; without a namespace, also those whose parents have ended."""
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            for thread in os.listdir(f"/proc/{pid}/task"):
                waiting += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found[1:]


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


def proportional(pid: int) -> int:
    """Resident bytes, those that several processes share divided among them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:  # it has said that it is not to be looked into
        return resident(pid)
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
