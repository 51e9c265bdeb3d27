"""Updates around another one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.base import AbstractUpdate, Metrics, Models, Stateful
from gimbal.learning.updates.off_policy import AbstractOffPolicy
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class AbstractAround(AbstractUpdate):
    """Learns what ``inside`` learns, from batches that it may change, and something of its own beside."""

    off_policy: ClassVar[bool] = True

    inside: AbstractOffPolicy
    optimization: Optimization = field(init=False)  # that of ``inside``: there is one schedule

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimization", self.inside.optimization)
        if self.inside.controllers or self.inside.stability is not None:
            raise ValueError(
                f"controllers and stability belong to the whole update: give them to {type(self).__name__}, with paths such as "
                "inside.gamma"
            )

    @property
    def begins_from(self) -> str:
        return self.inside.begin_from

    def init(self, models: Models) -> dict[str, Stateful]:
        return self.inside.init(models)

    def begun(self, models: Models) -> None:
        self.inside.begun(models)

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        return self.inside.prepare(models, batch)

    def moves(self, batch: TrainBatch) -> list[int] | None:
        return self.inside.moves(batch)

    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        return self.inside.stepped(models, batch)
