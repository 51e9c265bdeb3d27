"""A coefficient that follows the extremes of a signal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class NewExtremes(AbstractController):
    """Grows when the signal exceeds all of its recent values, shrinks when it is below them all (GARDO, arXiv:2512.24138).

    value <- clip(value up^[s > max h] down^[s < min h], low, high), h the last ``window`` values of the signal before s (or fewer,
    at first).

    - ``up`` = ``down`` = 1, or a signal that stays between its extremes: constant.
    - the first step: constant.

    Published: window 20, up 1.1, down .9, from .02 to .2, initially .1; there it moves the share of samples held to the reference
    (GatedStepKL). Whether it waits for a full window is not stated.

    Confidence: verified.
    """

    signal: str = "gate/doubt"
    initial: float = 0.1
    low: float = 0.02
    high: float = 0.2
    up: float = 1.1
    down: float = 0.9
    window: int = 20

    def __post_init__(self) -> None:
        if self.window < 1 or not 0 < self.down <= 1 <= self.up:
            raise ValueError(
                f"NewExtremes goes by {self.window} values, and by factors of {self.up} and {self.down}; window is at least 1, up at "
                "least 1, and down above 0 and at most 1"
            )
        if not self.low <= self.initial <= self.high:
            raise ValueError(
                f"NewExtremes begins at {self.initial} and keeps between {self.low} and {self.high}; it must begin there"
            )

    def init(self) -> State:
        return {"value": self.initial}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        now = signals[self.signal]
        known = [state[name] for age in range(self.window) if (name := f"before.{age}") in state]
        value = state["value"]
        if known:
            value *= self.up if now > max(known) else self.down if now < min(known) else 1.0
        kept = [now, *known][: self.window]
        clipped = min(max(value, self.low), self.high)
        return {"value": clipped} | {f"before.{age}": value for age, value in enumerate(kept)}
