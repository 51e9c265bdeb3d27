"""When a run goes back to weights that it had: a band for its score, and which of its past versions is known to be good."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.composition import AbstractPart
from gimbal.controllers.base import State

SMOOTH = 0.7  # kept of the running mean of the score, and of its variance, each step
SLOWER = 0.5  # what a return makes of the learning rate


@dataclass(frozen=True, kw_only=True)
class Fallback(AbstractPart):
    """Returns to the last version whose own rollouts scored in the band, when the score has left it for ``patience`` steps.

    The band ends at best - max(``errors`` standard errors, ``share`` x abs(best)), best being the best running mean of the scores of a
    step. A version is a candidate until all that is trained on was drawn by it or newer ones; then, if the score is in the band, it is
    the good one, and the present one is the next candidate. After a return only what was drawn since counts, the learning rate is half
    of what it was, and a quarter the distance that steps aim at, which grows back by a tenth a step. At most ``most`` times a run. It
    keeps two copies of the weights.

    - ``most`` = 0, or a score that never falls: the run without it.

    Confidence: ours.
    """

    patience: int = 5
    errors: float = 3.0
    share: float = 0.15
    most: int = 3

    def __post_init__(self) -> None:
        if self.patience < 1 or self.most < 0 or not self.errors >= 0 or not self.share >= 0:
            raise ValueError(
                f"Fallback has patience {self.patience} (1 or more steps), most {self.most} (0 or more returns), errors {self.errors} "
                f"and share {self.share} (0 or above)"
            )

    def init(self) -> State:
        """``since``: scores of older versions do not count. ``candidate``, ``good``: versions; -1 is none."""
        return {"since": 0.0, "candidate": 0.0, "good": -1.0, "below": 0.0, "returns": 0.0, "care": 1.0}

    def update(self, state: State, score: float, oldest: int, version: int) -> State:
        """After the step to ``version``, whose batch scored ``score`` and was drawn by version ``oldest`` and newer ones.

        Where ``candidate`` is now ``version``, its weights are to be kept, and those of the former candidate are the good ones if
        ``good`` is its version. Where ``due`` is 1, the next step is a return.
        """
        new: dict[str, float] = {**state, "care": min(1.0, state["care"] * 1.1)}
        if oldest < state["since"]:
            return new
        mean, variance = state.get("mean", score), state.get("variance", 0.0)
        new["mean"] = SMOOTH * mean + (1 - SMOOTH) * score
        new["best"] = max(state.get("best", new["mean"]), new["mean"])
        error = math.sqrt(variance * (1 - SMOOTH) / (1 + SMOOTH))
        inside = new["mean"] >= new["best"] - max(self.errors * error, self.share * abs(new["best"]))
        new["below"] = 0.0 if inside else state["below"] + 1
        if inside:  # a fall is no noise: it would widen the band that it falls out of
            new["variance"] = SMOOTH * variance + (1 - SMOOTH) * (score - mean) ** 2
        if inside and oldest >= state["candidate"]:
            new["good"], new["candidate"] = state["candidate"], float(version)
        new["due"] = float(new["below"] >= self.patience and new["good"] >= 0 and new["returns"] < self.most)
        return new

    def returned(self, state: State, version: int) -> State:
        """The step to ``version`` was the return."""
        kept = {name: state[name] for name in ("best", "good", "variance") if name in state}
        begun = {"since": float(version), "candidate": float(version), "below": 0.0, "returns": state["returns"] + 1}
        return {**kept, **begun, "care": state["care"] * SLOWER**2}


def due(state: Mapping[str, float]) -> bool:
    """Whether the next step is a return."""
    return state.get("due", 0.0) == 1.0
