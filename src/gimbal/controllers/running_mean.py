"""A coefficient that is what a metric has been so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class RunningMean(AbstractController):
    """The mean of a signal over all steps so far: a history for parts that have none themselves (EPO, arXiv:2509.22576).

    value <- clip(mean of the signals of steps 1 to t, low, high)

    - before the first step: ``initial``, which enters no mean.
    - a constant signal: that signal, from the first step on.

    Confidence: verified.
    """

    signal: str = "entropy/policy"
    initial: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    def init(self) -> State:
        return {"value": self.initial, "mean": 0.0, "steps": 0.0}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        steps = state["steps"] + 1
        mean = state["mean"] + (signals[self.signal] - state["mean"]) / steps
        return {"value": min(max(mean, self.low), self.high), "mean": mean, "steps": steps}
