"""A live sandbox: its calls, outcomes and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

DEADLINE, MEMORY, PROCESSES, OUTPUT, SIZE = "deadline", "memory", "processes", "output", "size"
PASSED = {
    DEADLINE: "did not return within {:g} seconds and was ended",
    MEMORY: "used more than {:g} GB and was ended",
    PROCESSES: "had more than {} processes and was ended",
    OUTPUT: "said more than {:,} bytes and was ended",
}
MOST_SECONDS = 3600.0
Program = str | Sequence[str]  # the text of a Python program, or a command and its arguments


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a program ended by itself. An exception gives a ``code`` of 1, with its text in ``errors``."""

    code: int  # below 0: by the signal of that number
    output: str = ""
    errors: str = ""
    left: int = 0  # processes that it left running; they were ended


class SandboxError(Exception):
    """A third outcome, neither success nor failure of the program's author: it must not become a reward of 0.

    The message states what broke, in words that follow the sandbox's name.
    """


class Unavailable(SandboxError):
    """This rung is unavailable here, or does not hold. Nothing was run, and no weaker one was used instead."""


class Untrusted(SandboxError, ValueError):
    """It was attacked before its first use, and does not hold, or could not be tested. This ends the run; no rollout has failed."""


class OverLimit(SandboxError):
    """The program was killed at the limit named by ``limit``. The sandbox remains usable."""

    def __init__(self, limit: str, said: str) -> None:
        super().__init__(said)
        self.limit = limit

    @classmethod
    def of(cls, limit: str, most: float | int) -> OverLimit:
        return cls(limit, PASSED[limit].format(most))

    def __reduce__(self) -> tuple[type[OverLimit], tuple[str, str]]:
        return OverLimit, (self.limit, str(self))


class Lost(SandboxError):
    """The sandbox has ended, and its files are gone. A program, or the machine, killed its server process."""


class AbstractSandbox(ABC):
    """One live sandbox. Calls come one at a time, from any thread. All that a call started has ended when it returns."""

    @abstractmethod
    def exec(self, program: Program, *, stdin: str = "", seconds: float | None = None) -> Outcome:
        """Run it to its end, in at most ``seconds`` (None: the rung's limit). Raises SandboxError."""

    @abstractmethod
    def write(self, path: str, content: bytes) -> None:
        """Write a file below the working directory; parent directories are created."""

    @abstractmethod
    def read(self, path: str) -> bytes: ...

    @abstractmethod
    def fork(self) -> AbstractSandbox:
        """An independent copy in the same state."""

    @abstractmethod
    def close(self) -> None:
        """Remove everything. A second call does nothing."""


def inside(path: str) -> str:
    """A path below the working directory, or a ValueError."""
    parts = path.split("/")
    written = path.encode(errors="replace").decode() == path  # a file's name is bytes
    if not path or path.startswith("/") or ".." in parts or "\0" in path or not written:
        raise ValueError(
            f"a path in a sandbox is {path!r}; expected one beneath its working directory, such as 'data/in.txt'"
        )
    return "/".join(part for part in parts if part not in ("", "."))


def allowed(seconds: float) -> float:
    """The time limit of a program in seconds, or a ValueError."""
    if not 0 < seconds <= MOST_SECONDS:
        raise ValueError(
            f"a program is given {seconds} seconds; expected a number above 0, at most {MOST_SECONDS:,.0f}"
        )
    return seconds
