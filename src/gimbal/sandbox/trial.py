"""The attacks of a sandbox on itself before it is trusted: ten attacks, as programs that every rung can run.

A successful one does no harm: it reads and writes a file made for it, sends signal 0 to this process, and allocates twice its memory
limit without touching it. It prints "through" if it succeeds; a rung whose language cannot express it holds.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from gimbal.sandbox.live import DEADLINE, AbstractSandbox, Lost, OverLimit

SECRET = "hidden words"
READS = "print('through' if {secret!r} in open({file!r}).read() else '')"
WRITES = "open({file!r}, 'a').write('more')\nprint('through')"
ENVIRONMENT = """
import os
found = []
def look(read):
    try:
        found.append(str(read()))
    except Exception:
        pass
look(lambda: dict(os.environ))
look(lambda: os.getenv('GIMBAL_TRIAL'))
look(lambda: open('/proc/{trainer}/environ', 'rb').read())
look(lambda: open('/proc/%d/environ' % os.getppid(), 'rb').read())
print('through' if {secret!r} in str(found) else '')
"""
MEMORY_OF_OTHERS = """
import os
for pid in ({trainer}, os.getppid()):
    try:
        open('/proc/%d/mem' % pid, 'rb')
        print('through')
    except OSError:
        pass
"""
SIGNALS = "import os\nos.kill({trainer}, 0)\nprint('through')"
NETWORK = "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1.0)\nprint('through')"
LINK = "import os\nos.symlink({file!r}, 'link')"
DAEMON = """
import fcntl, os, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        lock = open('lock', 'w')
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(write, b'x')
        os.close(1)
        os.close(2)
        time.sleep(60)
    os._exit(0)
os.close(write)
os.read(read, 1)
"""
DAEMON_LIVES = """
import fcntl
try:
    fcntl.flock(open('lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print('through')
"""
FORKS = """
import os, time
for _ in range({processes}):
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
time.sleep(0.5)
print('through')
"""
TAKES_MEMORY = "x = bytes({memory})\nprint('through')"
SECONDS = 20.0  # for an attack, on a machine that is busy
PROCESSES, MEMORY_GB = 40, 4  # more than a rung allows by default


@runtime_checkable
class Startable(Protocol):
    """A choice of a rung with its limits; hashed by them."""

    def start(self) -> AbstractSandbox: ...


_TRYING = threading.Lock()


def held(spec: Startable) -> dict[str, bool]:
    """Ten attacks, each with whether the rung held it off. Once a process for a choice of limits: one thread tries, others wait for
    what it finds. SandboxError: the trial itself broke, and nothing was found."""
    with _TRYING:
        return _tried(spec)


@cache
def _tried(spec: Startable) -> dict[str, bool]:
    with tempfile.TemporaryDirectory(prefix="gimbal-trial-") as place, socket.create_server(("127.0.0.1", 0)) as server:
        file = Path(place, "file")
        file.write_text(SECRET)
        words = {"file": str(file), "secret": SECRET, "trainer": os.getpid(), "port": server.getsockname()[1]}
        words |= {
            "processes": most(spec, "processes", PROCESSES),
            "memory": int(2 * most(spec, "memory_gb", MEMORY_GB) * 2**30),
        }
        # What is tried is whether this process's own environment gets in, so it must lie there. It stays: another thread that copies
        # the environment while a variable is removed from it raises a KeyError.
        os.environ["GIMBAL_TRIAL"] = SECRET
        sandbox = spec.start()
        try:
            return attacked(sandbox, file, words)
        finally:
            sandbox.close()


def attacked(sandbox: AbstractSandbox, file: Path, words: dict[str, object]) -> dict[str, bool]:
    def through(program: str) -> bool:
        try:
            return "through" in sandbox.exec(program.format(**words), seconds=SECONDS).output
        except OverLimit as error:
            if error.limit == DEADLINE:  # an attack that was not finished has shown nothing
                raise Lost(f"did not finish an attack on itself within {SECONDS:g} seconds") from error
            return False

    found = {
        "reading a file": not through(READS),
        "writing a file": not through(WRITES) and file.read_text() == SECRET,
        "reading the environment": not through(ENVIRONMENT),
        "opening the memory of others": not through(MEMORY_OF_OTHERS),
        "signalling the run": not through(SIGNALS),
        "reaching the network": not through(NETWORK),
        "leading out by a link": not through(LINK) and not reads(sandbox, "link"),
        "leaving a process behind": not through(DAEMON) and not through(DAEMON_LIVES),
        "taking memory": not through(TAKES_MEMORY),
    }
    try:  # last, as it may cost the sandbox
        return found | {"forking without end": not through(FORKS)}
    except Lost:
        return found | {"forking without end": True}


def reads(sandbox: AbstractSandbox, path: str) -> bool:
    try:
        return SECRET.encode() in sandbox.read(path)
    except OSError:
        return False


def most(spec: Startable, name: str, otherwise: float | int) -> float | int:
    """A limit of the rung, and somewhat more, where it has one of this name."""
    return vars(spec)[name] + 8 if name == "processes" and name in vars(spec) else vars(spec).get(name, otherwise)
