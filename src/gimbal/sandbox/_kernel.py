"""What the sandbox asks of Linux, by ctypes: each call raises OSError where the kernel refuses."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 1, 2
CAPABILITIES = 64  # more than there are
CAPABILITY_VERSION = 0x20080522

# Numbers of calls that glibc has no function for; the newer ones are the same on every architecture.
CLONE = {"x86_64": 56, "aarch64": 220}
MOUNT_SETATTR, LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 442, 444, 445, 446

# Landlock's rights to files by the version of its interface that brought them: everything it can refuse is refused.
RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
ALL_TCP, ALL_SCOPES = 3, 3


def call(name: str, *arguments: object) -> int:
    """A function of libc that gives -1 for an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc[name](*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int) -> None:
    call("prctl", option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def clone(flags: int) -> int:
    """fork() into new namespaces. The caller has one thread, so Python's own preparations for a fork are all it takes;
    unlike unshare(), nothing has changed for the caller where it fails.
    """
    machine = os.uname().machine
    if machine not in CLONE:
        raise OSError(f"no namespaces on {machine}")
    libc, python = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    number = ctypes.c_long(CLONE[machine])
    arguments = [ctypes.c_ulong(flags | 17), *[ctypes.c_ulong(0)] * 4]  # 17: SIGCHLD
    python.PyOS_BeforeFork()
    pid = libc.syscall(number, *arguments)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"clone: {os.strerror(error)}")
    return pid


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def read_only(path: str) -> None:
    """Of a mount and all those beneath it."""
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    _syscall(MOUNT_SETATTR, AT_FDCWD, path.encode(), AT_RECURSIVE, attributes, len(attributes))


def drop_bounding() -> None:
    """No program that is executed from here on gains a capability."""
    for capability in range(CAPABILITIES):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # there is no such capability, or no right to drop one, and then there is none to gain either
            break


def drop_capabilities() -> None:
    drop_bounding()
    call("capset", struct.pack("Ii", CAPABILITY_VERSION, 0), bytes(24))


def landlock_version() -> int:
    """0 where the kernel has no Landlock, or it is switched off."""
    try:
        return _syscall(LANDLOCK_CREATE, None, 0, 1)
    except OSError:
        return 0


def landlock(version: int, reads: Iterable[str], writes: Iterable[str], network: bool) -> None:
    """Leave this process, and its children, the files beneath these paths. No ptrace of others in any version; no
    signals to others from version 6.
    """
    rights = sum(right for since, right in RIGHTS.items() if since <= version)
    attributes = [rights] if version < 4 else [rights, 0 if network else ALL_TCP]
    if version >= 6:
        attributes.append(ALL_SCOPES)
    packed = struct.pack(f"{len(attributes)}Q", *attributes)
    rules = _syscall(LANDLOCK_CREATE, packed, len(packed), 0)
    seen = EXECUTE | READ_FILE | READ_DIR
    for allowed, paths in ((seen, reads), (rights, writes)):
        for path in paths:
            try:
                file = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:  # not there, or not for this user: nothing to grant
                continue
            kept = allowed if stat.S_ISDIR(os.fstat(file).st_mode) else allowed & OF_A_FILE
            _syscall(LANDLOCK_ADD, rules, 1, struct.pack("=Qi", kept & rights, file), 0)
            os.close(file)
    _syscall(LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def _syscall(number: int, *arguments: object) -> int:
    if sys.platform != "linux":
        raise OSError("not Linux")
    return call("syscall", ctypes.c_long(number), *arguments)
