"""The child process of worker.Worker: it confines itself, makes its target, answers calls until its parent is gone.

Nothing of gimbal is imported before the target asks for it but what confines, so the child is up as soon as the
target's own imports are done. Calls arrive pickled from the parent; answers go back as JSON, because what has handled a
model's text is not to be unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

from gimbal.sandbox._confine import FILE_BYTES, NONCE, Order, confine
from gimbal.sandbox._supervisor import supervise

OURS = (Path(__file__).parent, Path(__file__).parents[1] / "rewards")
HIDDEN = (errno.EACCES, errno.ENOENT, errno.EROFS)  # how what is not granted looks
UNSEEN = "its process does not see the environment variable"
# Where a frame is none of the user's: in gimbal, in Python and its packages, in what they made of text.
LIBRARIES = (
    "<",
    f"{Path(__file__).parents[1]}/",
    *{f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)
MESSAGE = 400  # characters of an error that reach the parent's sentence


def main() -> None:
    # Both are read now: they lie where the confined process cannot look.
    order = Order.loads(Path(sys.argv[1]).read_text())
    target = Path(order.target).read_bytes()
    if sys.platform == "linux":
        supervise(order, lambda order, lacking: _serve(order, target, lacking))
    else:
        _serve(order, target, confine(order, uid=0, rooted=False, own_user=False) | {"namespaces": sys.platform})


def _serve(order: Order, target: bytes, lacking: dict[str, str]) -> None:
    connection, own, output = Connection(order.connection), os.getpid(), _Output()
    os.chdir(order.directory if os.path.isdir(order.directory) else order.scratch)
    connection.send_bytes(json.dumps(lacking).encode())
    made: list[Any] = []

    def make() -> Any:
        made.extend(cloudpickle.loads(target)())
        return made[1]

    connection.send_bytes(_attempt(make, ""))
    while made:
        try:
            call = connection.recv_bytes()
        except EOFError:
            return
        output.begin()
        reply = _attempt(lambda call=call: made[0](*cloudpickle.loads(call[NONCE:])), call[:NONCE].hex())
        output.end()
        if os.getpid() != own:  # a fork that the function left: its reply would be taken for the next call's
            os._exit(0)
        connection.send_bytes(reply)


class _Output:
    """Standard streams that last, whatever a function does to them: each call begins with those of the start."""

    def __init__(self) -> None:
        self.null, self.file = os.open(os.devnull, os.O_RDONLY), os.dup(1)
        self.streams = sys.stdin, sys.stdout, sys.stderr

    def begin(self) -> None:
        """What is kept of the output is that of the present call. A function may have closed all of this."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.file, 0)
            for number, kept in enumerate((self.null, self.file, self.file)):
                os.dup2(kept, number)
        with contextlib.suppress(ValueError):  # cut off from what it wrote to
            if not any(stream.closed for stream in self.streams):
                sys.stdin, sys.stdout, sys.stderr = self.streams
                return
        self.streams = open(0, closefd=False), open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        sys.stdin, sys.stdout, sys.stderr = self.streams

    def end(self) -> None:
        for stream in (*self.streams, sys.stdout):
            with contextlib.suppress(Exception):  # whatever a function put in its place
                stream.flush()


def _attempt(action: Callable[[], Any], nonce: str) -> bytes:
    """The reply to send. SystemExit is a failure too: a scorer does not decide when its process ends."""
    try:
        return json.dumps({"nonce": nonce, "value": action()}).encode()
    except BaseException as error:
        with contextlib.suppress(Exception):  # it may have closed what this writes to
            traceback.print_exc()
        frames = [frame[:2] for frame in traceback.extract_tb(error.__traceback__)]
        file, line = frames[-1]
        # adapters.py refused it: a sentence for the user.
        if isinstance(error, ValueError) and Path(file).parent in OURS:
            return json.dumps({"nonce": nonce, "refused": str(error)[:MESSAGE]}).encode()
        if isinstance(error, SyntaxError):  # it is in a file that was being imported, not in the frame that imported it
            file, line = error.filename or file, error.lineno
        elif own := [frame for frame in frames if not frame[0].startswith(LIBRARIES)]:
            file, line = own[-1]  # the user's, and not the library's that it called
        where = f"{Path(file).name}, line {line}"
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            most = f"{FILE_BYTES >> 20} MiB, which is the most for one file, and for all that a call prints"
            return json.dumps({"nonce": nonce, "refused": f"it wrote more than {most} ({where})"}).encode()
        text = " ".join(f"{type(error).__name__}: {error}".split())[:MESSAGE]  # one line, however much it quotes
        if isinstance(error, KeyError) and frames[-1][0] in (os.__file__, "<frozen os>"):
            text = f"KeyError: {UNSEEN} {error.args[0]}"
        if isinstance(error, OSError) and error.filename is not None and error.errno in HIDDEN:
            text += "; `reads` and `writes` of a reward name what else it may open (docs/isolation.md)"
        return json.dumps({"nonce": nonce, "error": text, "where": where}).encode()


if __name__ == "__main__":
    main()
