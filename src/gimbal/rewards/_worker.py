"""The child process of isolation.Worker: it confines itself, makes its target, answers calls until its parent is gone.

Nothing of gimbal is imported before the target asks for it, so the child is up as soon as the target's own imports
are done. Calls arrive pickled from the parent; answers go back as JSON, because what has handled a model's text is
not to be unpickled.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
FILES = 256  # open at once
FILE_BYTES = 1 << 28  # largest file it may write
MESSAGE = 400  # characters of an error that reach the parent's sentence


def main() -> None:
    handle, parent, memory, network, target = sys.argv[1:]
    connection, own = Connection(int(handle)), os.getpid()
    _confine(int(parent), int(memory), network == "1")
    reply, function = _attempt(lambda: cloudpickle.loads(Path(target).read_bytes())())
    if function is not None:
        function, needs = function
        reply = {"value": needs}
    connection.send_bytes(json.dumps(reply).encode())
    while function is not None:
        try:
            call = connection.recv_bytes()
        except EOFError:
            return
        os.ftruncate(1, 0)  # what is kept of its output is that of the present call
        reply, _ = _attempt(lambda call=call: function(*cloudpickle.loads(call)))
        sys.stdout.flush()
        if os.getpid() != own:  # a fork that the function left: its reply would be taken for the next call's
            os._exit(0)
        connection.send_bytes(json.dumps(reply).encode())


def _attempt(action: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """The reply to send, and the value. SystemExit is a failure too: a scorer does not decide when its process ends."""
    try:
        value = action()
        return {"value": value}, value
    except BaseException as error:
        traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}, line {frame.lineno}"
        text = " ".join(f"{type(error).__name__}: {error}".split())  # one line, however much it quotes
        return {"error": text[:MESSAGE], "where": where}, None


def _confine(parent: int, memory: int, network: bool) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if not network and libc.unshare(CLONE_NEWNET) != 0:
            libc.unshare(CLONE_NEWNET | CLONE_NEWUSER)  # for those who are not root; many containers permit neither
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above could take effect
        sys.exit(1)
    limits = {resource.RLIMIT_NOFILE: FILES, resource.RLIMIT_FSIZE: FILE_BYTES, resource.RLIMIT_CORE: 0}
    if memory:
        limits[resource.RLIMIT_AS] = memory
    for limit, value in limits.items():
        most = resource.getrlimit(limit)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (value, value))


if __name__ == "__main__":
    main()
