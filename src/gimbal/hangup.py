"""A terminal that is closed under a run: SIGHUP, and then each write to it fails."""

from __future__ import annotations

import os
import signal
import stat
from contextlib import suppress


def heard() -> tuple[signal.Signals, ...]:
    """SIGHUP, unless nohup has it ignored: then the run outlives its terminal."""
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)


def mute() -> None:
    """Write nothing more to the terminal. Its shell may send SIGHUP once more, and that is no second Ctrl-C: it is ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        with suppress(OSError):  # closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nothing, descriptor)
    os.close(nothing)
