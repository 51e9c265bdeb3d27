"""A coefficient that falls by steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class Staircase(AbstractController):
    """A schedule: constant, then equal steps down to a floor (the mix of two anchors in ReMix, arXiv:2507.06892).

    value after t learner steps = max(initial - drop ceil(max(t - begin, 0) / every), low). It reads no signal.

    - ``drop`` = 0: constant.
    - ``begin`` = 0, ``every`` = 1: a linear decay to ``low``.

    Confidence: verified (secondary).
    """

    initial: float = 1.0
    drop: float = 0.1
    begin: int = 50
    every: int = 10
    low: float = 0.5

    def __post_init__(self) -> None:
        if self.drop < 0 or self.every < 1 or self.low > self.initial:
            raise ValueError(
                f"Staircase goes from {self.initial} down to {self.low} by {self.drop} every {self.every} steps; "
                "drop is 0 or above, every at least 1, and low at most initial"
            )

    def init(self) -> State:
        return {"value": self.initial, "steps": 0.0}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        steps = state["steps"] + 1
        stairs = math.ceil(max(steps - self.begin, 0) / self.every)
        return {"value": max(self.initial - self.drop * stairs, self.low), "steps": steps}
