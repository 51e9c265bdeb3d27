"""Runs a command in its own process group until it ends, or until the process at the other end of standard input is gone.

A server started by a run must not outlive it, however the run ends: after SIGKILL no process is left to stop it, but the pipe closes.
A grandchild watches the pipe, since Ray kills a worker's children before they can end anything, but not theirs. Run as a script, so
that nothing of gimbal is imported: python _keeper.py COMMAND...
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

GRACE = 5.0  # seconds for the command to end by itself


def main() -> int:
    if keeper := os.fork():
        return max(os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1]), 0)
    os.setsid()
    return keep()


def keep() -> int:
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
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
