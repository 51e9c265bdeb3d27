"""Where tasks come from."""

from __future__ import annotations

from abc import ABC, abstractmethod

from gimbal.composition import AbstractPart
from gimbal.records import Task


class AbstractTasks(AbstractPart, ABC):
    """A finite, indexable set of tasks; procedural ones are just large. The same index is always the same task."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Task: ...
