"""Where the anchor of the trust region comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.records import TrainBatch

Evaluate = Callable[[TrainBatch], Tensor]  # logprob_NS of the trainer's present weights, without gradient


class AbstractAnchor(ABC):
    """(batch, evaluate) -> proximal_NS, before the first update on the batch.

    ``absorbs`` names ratios that this choice folds into "update": with behaviour as anchor there is no discrepancy left to correct.
    """

    absorbs: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]: ...
