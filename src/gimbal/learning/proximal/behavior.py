"""The log-probabilities the engine recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.learning.proximal.base import AbstractAnchor, Evaluate
from gimbal.objectives.base import DISCREPANCY
from gimbal.records import TrainBatch


@dataclass(frozen=True)
class Behavior(AbstractAnchor):
    """proximal = behavior: the clip then bounds the total ratio, staleness and discrepancy together. Costs no forward pass.

    If the engine is the trainer itself, at age 0, it equals Recompute.
    """

    absorbs: ClassVar[frozenset[str]] = frozenset({DISCREPANCY})

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        return batch.column("behavior_NS", self)
