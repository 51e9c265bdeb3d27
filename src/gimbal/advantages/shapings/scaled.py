"""Advantages times a number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class Scaled(AbstractAdvantage):
    """A <- ``factor`` A: what the surrogate counts beside regularisers and the critic's loss, where a controller moves it.

    Surrogates that are linear in a positive factor of A, as the clipped ones are, are then ``factor`` times themselves.

    - ``factor`` = 1: A.
    - ``factor`` = 0: regularisers alone move the policy.

    Confidence: textbook.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS"})

    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.factor < math.inf:
            raise ValueError(f"Scaled.factor is {self.factor}; it multiplies advantages, and must be 0 or above")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return self.factor * batch.column("advantage_NS", self)
