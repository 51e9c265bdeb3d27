"""Tools that answer a policy during generation."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Moment
from gimbal.records import Fault, Task, is_chat


class AbstractTool(AbstractEnvironmentSpec):
    """(task, text so far) -> its answer after that text (text, or chat messages, which the model's template renders), or None: no
    answer, the policy continues.

    It is called whenever one of its ``triggers`` has just been written, concurrently from several threads. A frozen dataclass without
    state: everything it needs is in the text.
    """

    @property
    @abstractmethod
    def triggers(self) -> tuple[str, ...]: ...

    @property
    def fault(self) -> Fault:
        return "tool"

    @abstractmethod
    def __call__(self, task: Task, text: str) -> str | list[dict[str, str]] | None: ...

    def refused(self, said: str | list[dict[str, str]] | None) -> bool:
        """Whether this answer reports an invalid call."""
        return False

    def open(self) -> AbstractEnvironment:
        return Answering(self)


class Answering(AbstractEnvironment):
    """A tool as an environment that never ends. Its only state is the task, so restoring it is immediate."""

    def __init__(self, tool: AbstractTool, task: Task | None = None) -> None:
        self.tool, self.task = tool, task

    def reset(self, task: Task, seed: int) -> None:
        self.task = task

    def step(self, action: str) -> Moment:
        assert self.task is not None, "reset comes before step"
        said = self.tool(self.task, action)
        if said is not None and not isinstance(said, str) and not is_chat(said):
            raise TypeError(f"it returned {type(said).__name__}; a tool returns text (str), or None for nothing")
        return Moment(observation=said, calls=int(said is not None), errors=int(self.tool.refused(said)))

    def fork(self) -> Answering:
        return Answering(self.tool, self.task)


@dataclass(frozen=True, kw_only=True)
class Calculator(AbstractTool):
    """Returns the sum, difference or product of the two integers before an "=", or ``unreadable`` if there are none."""

    unreadable: str = "?"

    @property
    def triggers(self) -> tuple[str, ...]:
        return ("=",)

    def refused(self, said: str | list[dict[str, str]] | None) -> bool:
        return said == self.unreadable

    def __call__(self, task: Task, text: str) -> str | None:
        if not text.endswith("="):
            return None
        found = re.search(r"(?<!\d)(-?\d{1,9})\s*([-+*])\s*(-?\d{1,9})\s*=$", text)
        if found is None:
            return self.unreadable
        a, sign, b = int(found[1]), found[2], int(found[3])
        return str({"+": a + b, "-": a - b, "*": a * b}[sign])
