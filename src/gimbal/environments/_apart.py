"""The process of one environment, apart.Apart: it answers calls until the other side is gone, and ends with it.

Its arguments are the environment's name and the numbers of two open files: the connection, and what ends it (``end_with``).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pickle
import platform
import select
import signal
import sys
import threading
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from gimbal.config.own import raised
from gimbal.environments.apart import Elsewhere
from gimbal.environments.opening import READ, anew, opened, spaces_of


def main() -> None:
    source, connection, lifeline = sys.argv[1], Connection(int(sys.argv[2])), int(sys.argv[3])
    for number in (connection.fileno(), lifeline):  # what the environment starts is not to hold them open
        os.set_inheritable(number, False)
    end_with(lifeline)
    flush_denormals()
    try:
        env = opened(source)
        found = cloudpickle.dumps((False, spaces_of(env, source)))  # a user's own class of spaces travels as it is
    except Exception as error:
        said = error if type(error) is ValueError else Elsewhere(f"raised {raised(error)}")
        connection.send_bytes(pickle.dumps((True, said)))
        return
    connection.send_bytes(found)
    used = False
    while True:
        try:
            call, given = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        if call == "reset" and used:
            env = anew(env, partial(opened, source))
        used = True
        connection.send_bytes(answered(env, call, given))
        if call == "close":
            os._exit(0)  # whatever threads it has left


def answered(env: Any, call: str, given: Any) -> bytes:
    """(Whether it raised, what it returned or raised), pickled. SystemExit is data too: an environment does not end the run."""
    try:
        if call == "reset":
            value = env.reset(seed=given)
        else:
            value = env.step(given) if call == "step" else env.close()
        return pickle.dumps((False, lean(value)))
    except BaseException as error:
        return pickle.dumps((True, Elsewhere(f"raised {raised(error)}")))


def lean(answer: Any) -> Any:
    """An answer without what nobody reads of its info, which may be large, or be nothing that travels."""
    if not isinstance(answer, tuple | list) or not answer or not isinstance(answer[-1], Mapping):
        return answer
    return *answer[:-1], {name: answer[-1][name] for name in READ if name in answer[-1]}


def end_with(lifeline: int) -> None:
    """Kill this process, and what it starts, as soon as nobody holds the other end of this pipe any more."""
    if sys.platform != "linux":
        threading.Thread(target=_wait_for_end, args=(lifeline,), daemon=True).start()
        return
    # By the kernel: a thread would wait for a lock that code in C may hold while it hangs.
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it was closed before
        os._exit(1)


def _wait_for_end(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


# Where fenv_t of the C library has the mode of the processor's arithmetic, in words of 32 bits, and the bits that flush denormals.
MODES = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}


def flush_denormals() -> None:
    """As the run's own process does (``runtime/device.py``), so that both compute the same bits; torch would have to be imported."""
    if sys.platform != "linux" or platform.machine() not in MODES:
        return
    place, bits = MODES[platform.machine()]
    library, mode = ctypes.CDLL(None), (ctypes.c_uint32 * 16)()
    library.fegetenv(mode)
    mode[place] |= bits
    library.fesetenv(mode)
