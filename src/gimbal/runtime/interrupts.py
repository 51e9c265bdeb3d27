"""Ctrl-C, a scheduler's SIGTERM and the SIGHUP of a closed terminal: noted first, obeyed at the next checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import torch

from gimbal import hangup


@contextmanager
def interruptible(step: Callable[[], int]) -> Iterator[Callable[[], bool]]:
    """Within it the first Ctrl-C, SIGTERM or SIGHUP is only noted, and said to be; only the main thread may ask for that.

    ``step``: the number of the step that is under way.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    # Among torchrun's ranks SIGTERM may say that one of them died; the step would not end.
    ranks = torch.distributed.is_available() and torch.distributed.is_initialized()
    numbers = (signal.SIGINT,) if ranks else (signal.SIGINT, signal.SIGTERM, *hangup.heard())
    before = {number: signal.getsignal(number) for number in numbers}

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        if number == signal.SIGHUP:
            hangup.mute()
        else:  # past Python's buffers, which this may have interrupted in the middle of a line
            with suppress(OSError):
                os.write(
                    2, f"\ngimbal: stopping after step {step()}, with a checkpoint; once more to stop now\n".encode()
                )
        restore()

    def restore() -> None:
        for number, handler in before.items():
            if number != signal.SIGHUP or number not in noted:  # a closed terminal stays ignored
                signal.signal(number, handler)

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: bool(noted)
    finally:
        restore()
