"""How weights travel from the learner to engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor

from gimbal.engines.base import AbstractEngine


class AbstractWeightSync(ABC):
    """``publish`` makes a version available; ``deliver`` brings the newest published one to an engine."""

    @abstractmethod
    def publish(self, version: int, state: Mapping[str, Tensor]) -> None: ...

    @abstractmethod
    def deliver(self, engine: AbstractEngine) -> None: ...
