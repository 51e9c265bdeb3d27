"""How weights travel from the learner to engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from gimbal.composition import AbstractPart
from gimbal.engines.base import AbstractEngine
from gimbal.learning.weight_sync.delta import Packet, Stamp

# What leads whoever holds this stamp (None: nothing) to the newest version.
Since = Callable[[Stamp | None], list[Packet]]


class AbstractDistantEngine(AbstractEngine):
    """An engine whose copies of the weights are in other processes, each at its own version."""

    @abstractmethod
    def load_packets(self, version: int, since: Since) -> None:
        """``load`` by packets: each copy receives what ``since`` gives for its stamp, now or when it joins."""


class AbstractWeightSync(ABC):
    """``publish`` makes a version available; ``deliver`` brings the newest published one to an engine."""

    @abstractmethod
    def publish(self, version: int, state: Mapping[str, Tensor]) -> None: ...

    @abstractmethod
    def deliver(self, engine: AbstractEngine) -> None: ...

    def travels(self, tensor: Tensor) -> Tensor:
        """What the way makes of a tensor before an engine is given it: nothing, or a cast."""
        return tensor

    def metrics(self) -> dict[str, float]:
        """Of the newest published version: ``sync/bytes`` and ``sync/changed_frac``, where anything is packed."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs in addition to the weights, whose current version it publishes again."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None


class AbstractWeightSyncSpec(AbstractPart, ABC):
    """The saved, frozen configuration of weight transfer; ``start`` makes the live one."""

    @abstractmethod
    def start(self) -> AbstractWeightSync: ...
