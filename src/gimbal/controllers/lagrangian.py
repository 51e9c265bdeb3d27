"""A multiplier that rises while a constraint is broken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class Lagrangian(AbstractController):
    """Projected dual ascent, once per step (DCMDP, arXiv:2606.08779).

    value <- clip(value + rate (signal - limit), low, high).

    - ``rate`` = 0: constant.
    - signal = 0: value falls by rate x limit per step to ``low``.
    - ``limit`` = inf: value goes to ``low``.

    Published: initial .1 (8B dense) or .05, rate 1, limit .0037 to .005 on the mean |p - p'|. Ours: ``high`` 1.

    Confidence: partial; from secondary sources; ours: ``high``.
    """

    signal: str = "mismatch/prob_diff"
    limit: float = 0.0037
    rate: float = 1.0
    initial: float = 0.1
    low: float = 0.0
    high: float = 1.0

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.signal.startswith("mismatch/prob_diff") and whole.run.policy.family.densities:
            yield Refusal(
                f"{type(whole.run.policy).__name__} has densities, for which |p - p'| has no meaning: use "
                "signal=mismatch/k3"
            )

    def init(self) -> State:
        return {"value": self.initial}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        moved = state["value"] + self.rate * (signals[self.signal] - self.limit)
        return {"value": min(max(moved, self.low), self.high)}
