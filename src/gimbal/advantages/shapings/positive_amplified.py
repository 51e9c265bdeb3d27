"""Where most rollouts fail, the few good ones weigh more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class PositiveAmplified(AbstractAdvantage):
    """Multiplies positive advantages by ``factor`` and sets full successes to a constant; for GroupCentered and Reinforce (R3L,
    arXiv:2601.03715).

    A' = c / (1 + temperature),  c = 1 if R >= success, else factor A if A >= 0, else A; R sums the rollout's rewards.

    - ``factor`` = 1, ``success`` = inf: A / (1 + temperature).
    - ``temperature`` = 0 with ``success`` = inf: every A < 0 stays as it is.
    - a group of full successes: 1 / (1 + temperature) each, as in supervised learning; other estimators give 0;
      filters.ZeroVariance drops such groups.

    Published: ``factor`` 3, ``success`` 1, ``temperature`` 1.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", "reward_NS"})

    factor: float = 3.0
    success: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.factor < 0 or self.temperature < 0 or math.isnan(self.success):
            raise ValueError(
                f"PositiveAmplified has factor {self.factor} and temperature {self.temperature}; both are 0 or above"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NS = batch.column("advantage_NS", self)
        amplified_NS = (self.factor * advantage_NS).where(advantage_NS >= 0, advantage_NS)
        full_N = batch.return_N >= self.success
        return amplified_NS.masked_fill(full_N[:, None] & batch.mask_NS, 1.0) / (1 + self.temperature)
