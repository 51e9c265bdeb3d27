"""Nothing is kept."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.dataflow.replay.base import AbstractStore, AbstractStoreSpec


class Passing(AbstractStore):
    """What goes in comes out."""

    def metrics(self) -> dict[str, float]:
        return {}


@dataclass(frozen=True, kw_only=True)
class Once(AbstractStoreSpec):
    """Trains on every rollout in one step, then discards it."""

    def start(self, seed: int) -> Passing:
        return Passing()
