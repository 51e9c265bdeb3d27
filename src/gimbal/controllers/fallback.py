"""When a run returns to earlier weights: a band for its score, and the last version known to be good."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.composition import AbstractPart
from gimbal.controllers.base import State

SLOW, FAST = 0.9, 0.7  # kept of the two running means of the score each step
FIRST = 10  # scores before which nothing is judged: the error of a mean is not known yet
SLOWER = 0.5  # what a return makes of the learning rate


@dataclass(frozen=True, kw_only=True)
class Fallback(AbstractPart):
    """Returns to the last version whose own rollouts scored in the band after the score has been outside for ``patience`` steps.

    The band ends at best - max(``errors`` standard errors, ``share`` x abs(best)). best is the highest slow mean of the step scores
    (over about 19), compared with a fast one (about 6); the standard error is that of their difference, estimated from differences
    between neighbouring steps. Nothing is judged before the tenth score. Of 3600 simulated runs of 200 steps with pure noise none
    returned, and a fall from .8 to .2 was answered within 8 steps (docs/stability.md); with correlated scores, more runs return.

    A version is a candidate until all training data was sampled by it or newer versions. Then, if the score is in the band, it
    becomes the good version, and the current one the next candidate. After a return only newly sampled data counts, the learning rate
    is halved, and the distance that steps aim at drops to a quarter and grows back by a tenth per step. At most ``most`` returns per
    run. It keeps two copies of the weights.

    - ``most`` = 0, or a score that never falls: the run without it.

    Confidence: ours.
    """

    patience: int = 5
    errors: float = 4.0
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
        return {
            "since": 0.0,
            "candidate": 0.0,
            "good": -1.0,
            "below": 0.0,
            "returns": 0.0,
            "care": 1.0,
            "variance": 0.0,
            "pairs": 0.0,
        }

    def update(self, state: State, score: float, oldest: int, version: int) -> State:
        """After the step to ``version``, whose batch scored ``score`` and was sampled by version ``oldest`` and newer ones.

        Where ``candidate`` is now ``version``, its weights are to be kept, and those of the former candidate are the good ones if
        ``good`` is its version. Where ``due`` is 1, the next step is a return.
        """
        new: dict[str, float] = {**state, "care": min(1.0, state["care"] * 1.1)}
        if oldest < state["since"]:
            return new
        count = new["count"] = state.get("count", 0.0) + 1
        for name, keep in (("slow", SLOW), ("fast", FAST)):
            # A mean over all scores until there are many: one that began at the first of them would stray with it.
            fresh = max(1 - keep, 1 / count)
            new[name] = (1 - fresh) * state.get(name, 0.0) + fresh * score
            # Of one score's variance.
            new[f"{name}/error2"] = (1 - fresh) ** 2 * state.get(f"{name}/error2", 0.0) + fresh**2
        if count >= FIRST and new["slow"] > state.get("best", -math.inf):
            new["best"], new["best/error2"] = new["slow"], new["slow/error2"]
        inside = "best" not in new or new["fast"] >= new["best"] - self._width(new)
        new["below"] = 0.0 if inside else state["below"] + 1
        if inside and "last" in state:  # a fall is no noise: it would widen the band that it falls out of
            new["pairs"] = state["pairs"] + 1
            new["variance"] = state["variance"] + ((score - state["last"]) ** 2 / 2 - state["variance"]) / new["pairs"]
        new["last"] = score
        if inside and oldest >= state["candidate"]:
            new["good"], new["candidate"] = state["candidate"], float(version)
        new["due"] = float(new["below"] >= self.patience and new["good"] >= 0 and new["returns"] < self.most)
        return new

    def _width(self, state: State) -> float:
        error = math.sqrt(state["variance"] * (state["fast/error2"] + state["best/error2"]))
        return max(self.errors * error, self.share * abs(state["best"]))

    def returned(self, state: State, version: int) -> State:
        """The step to ``version`` was the return."""
        kept = {name: state[name] for name in ("best", "best/error2", "good", "variance", "pairs") if name in state}
        begun = {"since": float(version), "candidate": float(version), "below": 0.0, "returns": state["returns"] + 1}
        return {**kept, **begun, "care": state["care"] * SLOWER**2}


def due(state: Mapping[str, float]) -> bool:
    """Whether the next step is a return."""
    return state.get("due", 0.0) == 1.0
