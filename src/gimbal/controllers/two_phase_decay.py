"""A coefficient that fades slowly at first, and fast in the second half."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class TwoPhaseDecay(AbstractController):
    """A schedule of two exponentials: slow decay while the policy explores, then a faster one (EPO, arXiv:2509.22576).

    With u = t / (steps / 2) after t learner steps: value = initial (1 - drop (1 - exp(-rate u))) for u < 1, then
    initial late exp(-late_rate (u - 1)). It reads no signal.

    - ``drop`` = 0: constant in the first half.
    - ``late_rate`` = 0: constant in the second half.

    Published: the defaults, over 150 epochs, for a weight of 1 on the smoothing of entropy.

    Confidence: verified.
    """

    initial: float = 1.0
    steps: int = 150
    drop: float = 0.2
    rate: float = 2.0
    late: float = 0.8
    late_rate: float = 3.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.rate < 0 or self.late_rate < 0:
            raise ValueError("TwoPhaseDecay decays over steps of at least 1, at rates of 0 or above")

    def init(self) -> State:
        return {"value": self._at(0.0), "step": 0.0}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        step = state["step"] + 1
        return {"value": self._at(step), "step": step}

    def _at(self, step: float) -> float:
        u = 2 * step / self.steps
        if u < 1:
            return self.initial * (1 - self.drop * (1 - math.exp(-self.rate * u)))
        return self.initial * self.late * math.exp(-self.late_rate * (u - 1))
