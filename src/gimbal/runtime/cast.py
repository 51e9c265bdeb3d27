"""The parts of a run by what they are, for the rules of composition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from gimbal.runtime.run import Run


class Cast:
    """The parts of a run by class, wherever in it they stand."""

    def __init__(self, run: Run) -> None:
        self.run, self.parts = run, list(_walk(run))

    def all(self, *classes: type) -> list[Any]:
        return [part for part in self.parts if isinstance(part, classes)]

    def has(self, *classes: type) -> bool:
        return bool(self.all(*classes))

    @property
    def updates(self) -> int:
        """Of the policy on one batch."""
        return self.run.optimization.epochs * self.run.optimization.minibatches


def _walk(here: Any) -> Iterator[Any]:
    """Every record in this one, at any depth."""
    if is_dataclass(here) and not isinstance(here, type):
        children: Any = [getattr(here, item.name) for item in fields(here)]
        yield here
    else:
        children = here.values() if isinstance(here, Mapping) else here if isinstance(here, tuple) else ()
    for child in children:
        yield from _walk(child)
