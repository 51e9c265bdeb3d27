"""A coefficient that moves once a signal has been good enough for long enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class Ready(AbstractController):
    """Holds a coefficient until a signal's average has reached a bar, then moves it to another value at a fixed pace: by default until
    the critic explains what comes, so that a policy gradient does not begin with advantages that are noise (InterMimic,
    arXiv:2502.20390).

    m <- keep m + (1 - keep) signal, the first m being the first signal. Once m >= bar after ``checks`` steps in a row it has opened,
    for good; u steps later value = closed + (opened - closed) min(1, u / steps), which is ``closed`` until then.

    - ``bar`` = -inf and ``checks`` = 1: ``Linear``, from the first step on.
    - ``steps`` = 0: ``opened`` at once, when it opens.
    - a signal that never reaches the bar: ``closed``.

    Two of them with the same ``signal``, ``bar``, ``checks`` and ``keep`` open at the same step.

    Published: explained variance of .6, 3 checks, keep .99, 4,000 updates to come in, not before the 7,000th. Ours: shorter.

    Confidence: verified.
    """

    signal: str = "value/explained"
    bar: float = 0.6
    checks: int = 3
    keep: float = 0.8
    closed: float = 0.0
    opened: float = 1.0
    steps: int = 10

    def __post_init__(self) -> None:
        if self.checks < 1 or not 0 <= self.keep < 1 or self.steps < 0:
            raise ValueError(
                f"Ready has checks {self.checks}, at least 1, keep {self.keep}, in [0, 1), and steps {self.steps}, 0 or more"
            )

    def init(self) -> State:
        return {"value": self.closed, "seen": 0.0, "mean": 0.0, "held": 0.0, "since": 0.0}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        now = signals[self.signal]
        mean = self.keep * state["mean"] + (1 - self.keep) * now if state["seen"] else now
        held = state["held"] + 1 if mean >= self.bar else 0.0
        since = state["since"] + 1 if state["since"] or held >= self.checks else 0.0
        share = 0.0 if not since else min(1.0, since / self.steps) if self.steps else 1.0
        value = self.closed + share * (self.opened - self.closed)
        return {"value": value, "seen": 1.0, "mean": mean, "held": held, "since": since}
