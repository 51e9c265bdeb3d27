"""How many groups to request where a filter drops some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class Acceptance(AbstractController):
    """Requests as many extra groups as dynamic sampling is expected to drop (adaptive DAPO of CodeV-R1, arXiv:2505.24183).

    Bound to ``oversampling``: q <- decay q + (1 - decay) kept_frac, from the first kept_frac on;
    value = clip((1 + margin) / q, 1, (1 + margin) / least).

    - kept_frac = 1 and ``margin`` = 0: value 1, each dropped group is requested again when it is dropped.
    - kept_frac constant at q and ``margin`` = 0: value 1 / q, DAPO (arXiv:2503.14476) with the right multiplier.
    - ``decay`` = 0: uses only the last step.

    Published: the rule (batch sizes from the discard rate of recent steps), without constants. Here a surplus within the staleness
    bound trains in the next step; beyond it, it is dropped and counted (``drops/surplus``).

    Confidence: partial; ours: ``decay``, ``margin`` and ``least``.
    """

    signal: str = "kept_frac"
    decay: float = 0.9
    margin: float = 0.1
    least: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"Acceptance.decay is {self.decay}; it must be in [0, 1), 0 being no average")
        if self.margin < 0 or not 0 < self.least <= 1:
            raise ValueError(
                f"Acceptance has margin {self.margin} and least {self.least}; the one is 0 or above, the other lies in (0, 1]"
            )

    @property
    def low(self) -> float:
        return 1.0

    @property
    def high(self) -> float:
        return (1 + self.margin) / self.least

    def init(self) -> State:
        return {"value": 1.0}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        kept = min(max(signals[self.signal], 0.0), 1.0)
        rate = self.decay * state["rate"] + (1 - self.decay) * kept if "rate" in state else kept
        return {"value": max((1 + self.margin) / max(rate, self.least), 1.0), "rate": rate}
