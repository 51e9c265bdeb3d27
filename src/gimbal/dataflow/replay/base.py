"""What is kept of what was drawn, and trained on again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from gimbal.composition import AbstractPart
from gimbal.records import TrainBatch


class AbstractStore(ABC):
    """The live half of an ``AbstractStoreSpec``: rows go in as they were packed, rows to train on come out."""

    @abstractmethod
    def take(self, fresh: TrainBatch) -> TrainBatch:
        """The rows of this step. ``fresh``: those that the rule of staleness released for it."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None


class AbstractStoreSpec(AbstractPart, ABC):
    """A store as a recipe names it: a frozen dataclass. ``bounded``: every row comes out in the step in which it goes in, and once, so
    that the rule of staleness bounds the age of what is trained on."""

    bounded: ClassVar[bool] = True

    @abstractmethod
    def start(self, seed: int) -> AbstractStore: ...
