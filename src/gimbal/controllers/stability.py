"""The closed loop: a region that each step stays in, and the rule that sets the next step from measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gimbal.composition import AbstractPart, Advice, Composition, Refusal, Verdict
from gimbal.controllers.base import State
from gimbal.controllers.fallback import Fallback

QUIET = 1e-12  # nats: a step that moved less says nothing of how far the next one will
# Times the target: a distance that is followed counts as no more. It has the exponential of a log-ratio in it, one of 1e7 nats does
# occur, and a mean would hold the rate down for 50 steps after it.
OUTLIER = 1000.0
FARTHEST = 20.0  # nats: where distances saturate (a log-ratio counts as no more)
SLOWEST = 0.05  # of the learning rate, however far the data is: with none no fresh data would ever come nearer


@dataclass(frozen=True, kw_only=True)
class Region:
    """The region a step may stay in, in nats per decision.

    ``kl``: how far a step should move the policy. It may go ``times`` as far; a longer step is scaled back to that.
    ``discrepancy``: how far the policy may be from the sampler of its training data, through age or coarser weights. At a quarter
    of it steps go half as far, at or above it a twentieth. ``calm``: few nats suffice to change a nearly certain policy. Where the mean
    surprise of its decisions (-log p) is below this, ``kl`` and ``discrepancy`` shrink in proportion.
    """

    kl: float = 0.01
    times: float = 4.0
    calm: float = 0.3
    discrepancy: float = 0.16

    def __post_init__(self) -> None:
        if not self.discrepancy > 0:
            raise ValueError(f"Region.discrepancy is {self.discrepancy}; it must be a distance above 0, inf for any")
        if not 1 < self.times <= math.inf:
            raise ValueError(
                f"Region.times is {self.times}; a step may go so often as far as it should: above 1, inf for any"
            )
        if not 0 <= self.calm < math.inf:
            raise ValueError(f"Region.calm is {self.calm}; it must be a surprise of 0 or above, and finite")
        # A distance counts as FARTHEST at most, so that beyond it no step would ever be taken back.
        most = FARTHEST / self.times if self.times < math.inf else FARTHEST
        if not 0 < self.kl <= most:
            raise ValueError(
                f"Region.kl is {self.kl}; it must be a distance above 0 and at most {most:g} nats a decision, beyond which no step is "
                "taken back. The default is 0.01"
            )


@dataclass(frozen=True, kw_only=True)
class Stability(AbstractPart):
    """Sets the learning rate by how far steps moved the policy, and scales back steps that left the region.

    target = c region.kl max(0.05, 1 - sqrt(discrepancy / (c region.discrepancy)))^2,   c = min(1, surprise / region.calm)

    ``discrepancy`` is the distance from the policy to the batch's sampler: the fraction of the region left is the fraction of
    the learning rate. Where all steps go in one direction and data has age a, this settles at kl / (1 + a / h)^2 with h =
    sqrt(region.discrepancy / region.kl): the largest stable step of delayed gradients, softened by h. A distance of a step is about d
    factor^2, with factor the multiplier of the learning rate; d and the surprise are exponential averages with decay ``keep`` per step,
    and factor moves to sqrt(target / d): by at most ``down`` and ``up`` per step, not at all within ``band``, never beyond 1 /
    ``widest`` and ``widest``. A distance counts as at most 1000 times the target. A step whose objective moved no decision never raises
    it.

    A step beyond ``region.times`` x target is scaled back: weights <- old + s (new - old), s = .9 sqrt(most / distance), measured
    again, at most ``tries`` times, and then undone. Distances are measured on every ``slice``-th pair of rows of the batch.
    ``fallback`` returns a run whose score fell to earlier weights.

    - ``region.kl`` near 0: nothing moves. ``region.discrepancy`` = inf: data age does not matter.
    - ``region.times`` = inf, ``down`` = ``up`` = 1: the run without it, plus measurements.

    Confidence: ours; step sizes by a measured KL are published (adaptive KL of PPO, arXiv:1707.06347; SAFE, arXiv:2602.04651).
    """

    region: Region = Region()
    keep: float = 0.7
    down: float = 4.0
    up: float = 2.0
    band: float = 1.1
    widest: float = 100.0
    slice: int = 16
    tries: int = 5
    fallback: Fallback | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.keep < 1:
            raise ValueError(f"Stability.keep is {self.keep}; it is the share of an average that stays, in [0, 1)")
        for name in ("down", "up", "band", "widest"):
            if not 1 <= vars(self)[name] < math.inf:
                raise ValueError(f"Stability.{name} is {vars(self)[name]}; it must be a factor of 1 or above")
        for name in ("slice", "tries"):
            if vars(self)[name] < 1:
                raise ValueError(f"Stability.{name} is {vars(self)[name]}; it must be at least 1")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.run.learns.off_policy:
            yield Refusal(
                f"Stability goes by the distance to the policy that drew the data, and {type(whole.run.learns).__name__} takes data of "
                "any: stability=None"
            )

        if whole.run.learns.optimization.learning_rate == 0:
            yield Refusal("Stability multiplies the learning rate, and 0 stays 0: set learning_rate=1e-5")
        if "optimization.learning_rate" in whole.run.learns.controllers:
            yield Advice(
                "Stability sets the learning rate by how far steps go, which cancels a controller of optimization.learning_rate "
                "does: move stability.region.kl instead"
            )

    def at_end(self, factor: float) -> bool:
        """Whether the rate can move no further that way."""
        return factor in (self.widest, 1 / self.widest)

    def init(self) -> State:
        return {"factor": 1.0}

    def seen(self, state: State, surprise: float) -> State:
        """With the surprise of the decisions that the next distance is measured on; inf where they have densities, nan of none."""
        if math.isnan(surprise):
            return state
        surprise = min(max(surprise, 0.0), self.region.calm)
        return {**state, "surprise": self._followed(state, "surprise", surprise)}

    def target(self, state: State, discrepancy: float) -> float:
        """The target move of a step in nats per decision, given the distance to the data's sampler."""
        region = self.region
        share = min(1.0, state.get("surprise", region.calm) / region.calm) if region.calm else 1.0
        most = region.discrepancy * share
        room = 1 - math.sqrt(max(discrepancy, 0.0) / most) if most > 0 else 0.0
        return region.kl * share * max(SLOWEST, room) ** 2

    def back(self, distance: float, target: float) -> float:
        """The fraction kept of a step that moved the policy this far: 1 is all of it, 0 where it has no distance."""
        if not math.isfinite(distance):
            return 0.0
        if self.region.times == math.inf:
            return 1.0
        most = self.region.times * target
        return 1.0 if distance <= most else 0.9 * math.sqrt(most / distance)

    def update(self, state: State, distance: float, target: float, schedule: float = 1.0) -> State:
        """``distance``: of the step as it was attempted, with the factor of this state. ``schedule``: what else the learning rate was
        multiplied with; the factor is the one that goes to ``target`` where that is 1, so that a schedule stays one.
        """
        factor = state["factor"]
        if not math.isfinite(distance):
            kept = {name: value for name, value in state.items() if name != "whole"}  # what was followed is of no use
            return {**kept, "factor": max(factor / self.down, 1 / self.widest)}
        if target <= QUIET or schedule <= 0:
            return state
        # A mean and not one of logarithms: few decisions make most of a distance, so many steps seem to go less far than they do.
        counted = min(distance, OUTLIER * target * schedule**2)
        followed = self._followed(state, "whole", counted / (factor * schedule) ** 2)
        if followed > QUIET:
            change = 0.5 * math.log(target / followed) - math.log(factor)
            if abs(change) > math.log(self.band):
                change = min(max(change, -math.log(self.down)), math.log(self.up))
                factor = min(max(factor * math.exp(change), 1 / self.widest), self.widest)
        return {**state, "factor": factor, "whole": followed}

    def _followed(self, state: State, name: str, value: float) -> float:
        return self.keep * state[name] + (1 - self.keep) * value if name in state else value
