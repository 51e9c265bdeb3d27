"""Sentences on stderr, apart from a command's output; one where a start takes long, so that nobody has to guess what it does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LOADING = "loading torch, transformers and gimbal"
AFTER = 3.0  # seconds: on an idle machine all of a start is over by then, and nothing is said


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """Say what is being done if it takes longer than ``AFTER`` seconds."""
    timer = threading.Timer(AFTER, tell, (f"{doing} ...",))
    timer.daemon = True  # it must not hold up the end of a process
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def tell(sentence: str) -> None:
    print(f"gimbal: {sentence}", file=sys.stderr, flush=True)
