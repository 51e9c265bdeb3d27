"""A KL coefficient that holds the KL at a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class AdaptiveKL(AbstractController):
    """Proportional control of the logarithm of the coefficient (Ziegler et al., arXiv:1909.08593).

    value <- clip(value (1 + gain clip(signal / target - 1, -0.2, 0.2)), low, high); ``gain`` is rollouts per step over the horizon.

    - ``gain`` = 0, or signal = target: constant.

    Confidence: verified.
    """

    signal: str = "kl/ref"
    target: float = 0.01
    gain: float = 0.1
    initial: float = 0.04
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.target <= 0:
            raise ValueError(f"AdaptiveKL.target is {self.target}; it must be above 0")

    def init(self) -> State:
        return {"value": self.initial}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        error = min(max(signals[self.signal] / self.target - 1, -0.2), 0.2)
        return {"value": min(max(state["value"] * (1 + self.gain * error), self.low), self.high)}
