"""Sandboxes for untrusted programs: one interface, several rungs (docs/isolation.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.sandbox.live import AbstractSandbox, SandboxError, Unavailable, Untrusted
from gimbal.sandbox.trial import held


class AbstractSandboxSpec(AbstractPart, ABC):
    """The saved, frozen choice of a rung with its limits; ``open`` makes a live one.

    ``open`` is for untrusted code: the first time in a process it attacks itself, and raises Untrusted if an attack succeeds, or the
    attacks cannot be made. ``start`` does the same without attacks.
    """

    def missing(self) -> str:
        """A message about missing requirements, or "". Called before a run; starts nothing."""
        return ""

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if wrong := self.missing():
            yield Refusal(wrong)

    @property
    def commands(self) -> bool:
        """Whether it runs commands as well as Python programs."""
        return True

    def attack(self) -> tuple[str, ...]:
        """The attacks that it held off; raises Untrusted unless those are all. A process attacks a rung once; a run does so before its
        first rollout."""
        try:
            found = held(self)
        except SandboxError as error:
            raise Untrusted(f"{type(self).__name__} could not be tried before its first use: {error}") from error
        if through := [name for name, holds in found.items() if not holds]:
            raise Untrusted(
                f"{type(self).__name__} does not hold on this machine: {', '.join(through)} got through. Untrusted code is not "
                "run; `gimbal env --sandbox` shows which rungs hold (docs/isolation.md)"
            )
        return tuple(found)

    def open(self) -> AbstractSandbox:
        self.attack()
        return self.start()

    @abstractmethod
    def start(self) -> AbstractSandbox:
        """A live sandbox, without attacking it first."""


def unavailable(asked: Callable[[], object]) -> str:
    """Why it is unavailable, or ""."""
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
