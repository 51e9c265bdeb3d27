"""A coefficient that follows its rule at a bounded pace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.adaptive_kl import AdaptiveKL
from gimbal.controllers.base import AbstractController, State

RULE = "rule/"  # before the names of what the rule itself remembers


@dataclass(frozen=True, kw_only=True)
class Smoothed(AbstractController):
    """Follows another controller slowly: exponentially, capped, with a dead band, or with all three (the followers of
    arXiv:2510.00339).

    u is the value of ``rule``, which sees its own past, not the smoothed value. D = u - value; nothing moves while
    |D| <= band, else value <- value + clip(share D', -cap, cap), with D' = D, or D minus the band with ``edge``.

    - ``share`` = 1, ``cap`` = inf, ``band`` = 0: the rule.
    - ``cap`` = 0 or ``share`` = 0: the rule's first value forever.
    - ``cap`` = inf, ``band`` = 0: an exponential average; ``share`` = 1, ``band`` = 0: steps of at most ``cap``.

    A rule that integrates its error (AdaptiveKL, Lagrangian) runs ahead while the value lags, and may overshoot: smooth little.

    Published: both together, as here by default, lose little tracking and smooth a lot. Cap and band are in units of the value.

    Confidence: partial; the rules are standard; ours: ``share``, ``cap`` and ``band``, and their use on coefficients.
    """

    rule: AbstractController = AdaptiveKL()
    share: float = 0.3
    cap: float = 0.1
    band: float = 0.0
    edge: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.cap < 0 or self.band < 0:
            raise ValueError(
                f"Smoothed has share {self.share}, cap {self.cap} and band {self.band}: the share lies in [0, 1], the others "
                "are 0 or above"
            )

    @property
    def signal(self) -> str:
        return str(getattr(self.rule, "signal", ""))

    @property
    def low(self) -> float:
        return float(getattr(self.rule, "low", -math.inf))

    @property
    def high(self) -> float:
        return float(getattr(self.rule, "high", math.inf))

    def init(self) -> State:
        inner = self.rule.init()
        return {"value": inner["value"], **{RULE + name: number for name, number in inner.items()}}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        before = {name.removeprefix(RULE): number for name, number in state.items() if name.startswith(RULE)}
        inner = self.rule.update(before, signals)
        value, target = state["value"], inner["value"]
        moved = target if self._is_rule else value + self._move(target - value)
        return {"value": moved, **{RULE + name: number for name, number in inner.items()}}

    @property
    def _is_rule(self) -> bool:
        return self.share == 1 and self.cap == math.inf and self.band == 0

    def _move(self, gap: float) -> float:
        if abs(gap) <= self.band:
            return 0.0
        gap -= math.copysign(self.band, gap) if self.edge else 0.0
        return min(max(self.share * gap, -self.cap), self.cap)
