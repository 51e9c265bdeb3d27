"""Leave out what sampler and trainer see too differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import AbstractMask
from gimbal.ops import Level
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class DiscrepancyBand(AbstractMask):
    """Trains only on chunks whose geometric mean weight lies in a band (IPA, arXiv:2512.24873).

    keep = low <= exp(mean(proximal - behavior)) <= high, the mean over the decision's turn, its sequence, or the decision itself.

    - proximal = behavior: everything.
    - ``low`` = 0, ``high`` = inf: everything.
    - ``level`` "token" and "sequence" keep what MaskedWeight(weigh=False) with level "token" and "geometric" keeps.

    IPA bounds from above only. As a mask it consumes no ratio and can be combined with a correction.

    Confidence: partial; ours: ``high``, which is not published.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "behavior_NS"})

    level: Level = "turn"
    low: float = 0.0
    high: float = 2.0
    renormalise: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.low <= 1 <= self.high:
            raise ValueError(
                f"DiscrepancyBand keeps [{self.low}, {self.high}]; the band must contain 1, the weight of equal engines"
            )
        if self.level not in ("token", "turn", "sequence"):
            raise ValueError(f"DiscrepancyBand.level is {self.level!r}; choose token, turn or sequence")

    def __call__(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        weight_NS = self.weight(batch)
        return (weight_NS >= self.low) & (weight_NS <= self.high) & batch.mask_NS

    def weight(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        log_NS = ops.log_ratio(batch.column("proximal_NS", self), batch.column("behavior_NS", self))
        return ops.pooled(log_NS, batch.mask_NS, self.level, batch.turns_NS).exp()
