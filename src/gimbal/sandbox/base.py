"""A place for programs that nobody trusts: one interface, several rungs (docs/isolation.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.sandbox.live import AbstractSandbox, SandboxError, Unavailable, Untrusted
from gimbal.sandbox.trial import held


class AbstractSandboxSpec(AbstractPart, ABC):
    """The saved, frozen choice of a rung with its limits; ``open`` makes a live one.

    ``open`` is for untrusted code: the first time in a process it attacks itself, and raises Untrusted where an attack
    gets through, or the attacks cannot be made. ``start`` is the same without that.
    """

    def missing(self) -> str:
        """What it needs and is not here, in a sentence, or "". Asked before a run; nothing is started for it."""
        return ""

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if wrong := self.missing():
            yield Refusal(wrong)

    @property
    def commands(self) -> bool:
        """Whether it runs commands as well as Python programs."""
        return True

    def attack(self) -> None:
        """Raises Untrusted unless it holds here. A process attacks a rung once; a run does so before its first rollout."""
        try:
            found = held(self)
        except SandboxError as error:
            raise Untrusted(f"{type(self).__name__} could not be tried before its first use: {error}") from error
        if through := [name for name, holds in found.items() if not holds]:
            raise Untrusted(
                f"{type(self).__name__} does not hold on this machine: {', '.join(through)} got through. Untrusted code is not "
                "run; `gimbal env --sandbox` shows which rungs hold (docs/isolation.md)"
            )

    def open(self) -> AbstractSandbox:
        self.attack()
        return self.start()

    @abstractmethod
    def start(self) -> AbstractSandbox:
        """A live one, not attacked first."""


def unavailable(asked: Callable[[], object]) -> str:
    """Why what is asked for is not to be had, or ""."""
    try:
        asked()
    except Unavailable as error:
        return str(error)
    return ""


def checked(spec: Any, *limits: tuple[str, float | int, float | int]) -> None:
    for name, value, most in limits:
        if not 0 < value <= most:
            raise ValueError(
                f"{type(spec).__name__} has {name}={value}; expected a number above 0, at most {most:,.0f}"
            )
