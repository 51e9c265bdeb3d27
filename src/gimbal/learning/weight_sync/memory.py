"""Weights in the same process: the engine copies straight out of the trainer's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from gimbal.engines.base import AbstractEngine
from gimbal.learning.weight_sync.base import AbstractWeightSync, AbstractWeightSyncSpec


class Memory(AbstractWeightSync):
    """It keeps no copy, so a version must be delivered before the learner's next step."""

    def __init__(self) -> None:
        self._newest: tuple[int, Mapping[str, Tensor]] | None = None

    def publish(self, version: int, state: Mapping[str, Tensor]) -> None:
        self._newest = (version, state)

    def deliver(self, engine: AbstractEngine) -> None:
        assert self._newest is not None, "publish comes before deliver"
        engine.load(*self._newest)


@dataclass(frozen=True, kw_only=True)
class Direct(AbstractWeightSyncSpec):
    """Copies the trainer's tensors to an engine in the same process; elsewhere sends all weights, in the precision of training."""

    def start(self) -> Memory:
        return Memory()
