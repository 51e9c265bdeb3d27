"""A coefficient that is what a metric has lately been."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class MovingAverage(AbstractController):
    """The exponential average of a signal over steps: the memory of a part, which has none itself (Williams 1992, for a baseline).

    value <- clip(decay value + (1 - decay) signal, low, high)

    - ``decay`` = 0: the signal of the step before, so that what a part reports of a batch comes back to it with the next.
    - ``decay`` = 1: constant.

    Confidence: verified.
    """

    signal: str = "reward/mean"
    decay: float = 0.9
    initial: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise ValueError(f"MovingAverage.decay is {self.decay}; it is the share kept of the average, 0 to 1")

    def init(self) -> State:
        return {"value": self.initial}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        moved = self.decay * state["value"] + (1 - self.decay) * signals[self.signal]
        return {"value": min(max(moved, self.low), self.high)}
