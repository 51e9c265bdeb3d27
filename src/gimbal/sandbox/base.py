"""A place for programs that nobody trusts: one interface, several rungs (docs/isolation.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from gimbal.composition import AbstractPart
from gimbal.sandbox.live import AbstractSandbox, Unavailable
from gimbal.sandbox.trial import held


class AbstractSandboxSpec(AbstractPart, ABC):
    """The saved, frozen choice of a rung with its limits; ``open`` makes a live one.

    ``open`` is for untrusted code: the first time in a process it attacks itself, and raises Unavailable where an attack
    gets through. ``start`` is the same without that.
    """

    def open(self) -> AbstractSandbox:
        if through := [name for name, holds in held(self).items() if not holds]:
            raise Unavailable(
                f"{type(self).__name__} does not hold on this machine: {', '.join(through)} got through. Untrusted code is not "
                "run; `gimbal env --sandbox` shows which rungs hold (docs/isolation.md)"
            )
        return self.start()

    @abstractmethod
    def start(self) -> AbstractSandbox:
        """A live one, not attacked first."""


def checked(spec: Any, *limits: tuple[str, float | int, float | int]) -> None:
    for name, value, most in limits:
        if not 0 < value <= most:
            raise ValueError(
                f"{type(spec).__name__} has {name}={value}; expected a number above 0, at most {most:,.0f}"
            )
