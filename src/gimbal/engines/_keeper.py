"""Runs a command in a process group of its own until it ends, or until whoever holds the other end of standard input is gone.

A server started by a run must not outlive it, however the run ends: after SIGKILL nobody is left to stop it, but the pipe closes. Where
the keeper itself is killed first (Ray kills the children of a worker that it ends), the kernel sends the command a SIGTERM. Run as a
script, so that nothing of gimbal is imported: python _keeper.py COMMAND...
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys

GRACE = 5.0  # seconds for the command to end by itself
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def main() -> int:
    keeper, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def bound() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != keeper:  # it is gone already
            os._exit(1)

    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=bound)
    ended = os.pidfd_open(child.pid)
    select.select([sys.stdin, ended], [], [])
    code = child.poll()
    for number in (signal.SIGTERM, signal.SIGKILL):  # its own children too, which may outlive it
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        select.select([ended], [], [], GRACE)
    return child.wait() if code is None else code


if __name__ == "__main__":
    sys.exit(main())
