"""The trainer's own weights before the update, in one extra forward pass."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gimbal.learning.proximal.base import AbstractAnchor, Evaluate
from gimbal.records import TrainBatch


@dataclass(frozen=True)
class Recompute(AbstractAnchor):
    """proximal = log pi_v(decision), v the learner's version when the batch arrives (AReaL, arXiv:2505.24298).

    On fresh data (age 0) exp(proximal - behavior) is pure discrepancy; on stale data it also holds the staleness between the version
    that sampled and v. With one update per batch, exp(logprob - proximal) is 1 at the gradient.
    """

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        return evaluate(batch)
