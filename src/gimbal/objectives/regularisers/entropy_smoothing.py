"""An entropy bonus that stays near its own history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.composition import ENTROPY, AbstractRemembering, State
from gimbal.objectives.base import AbstractObjective
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class EntropySmoothing(AbstractObjective, AbstractRemembering):
    """An entropy bonus, and a penalty on entropies far from the history of their turn (EPO, arXiv:2509.22576).

    loss = coef (smoothing P - H),  P = penalty (relu(H / c - high) + relu(low - H / c)) from turn ``begin`` on;  c = centres[turn],
    the last for all later turns. With ``form`` "indicator" P = penalty where H / c is not between low and high, which has no gradient.

    - ``penalty`` = 0, ``smoothing`` = 0, or ``form`` = "indicator": the gradient of EntropyBonus.
    - ``coef`` = 0: only the metrics.
    - a centre of 0 is not known yet and adds no penalty.

    ``centres`` holds the initial values, one per turn; from the first step in which a turn occurs its centre is the mean, over the
    steps in which it occurred, of its mean entropy. TwoPhaseDecay moves ``smoothing``. Published: ``coef`` 0.001, ``penalty`` 0.05 to
    0.1, ``low`` 0 and ``high`` 2 (or 0.8 and 1.2), ``begin`` half the turns, ``form`` "indicator"; ours: the hinge.

    Confidence: verified; ours: the form with a gradient.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"entropy_NS"})

    coef: float = 0.001
    smoothing: float = 1.0
    penalty: float = 0.1
    low: float = 0.0
    high: float = 2.0
    centres: tuple[float, ...] = (0.0,)
    begin: int = 0
    form: Literal["hinge", "indicator"] = "hinge"

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(
                f"EntropySmoothing.low is {self.low} and high {self.high}; they bound H / centre, so 0 <= low <= high"
            )
        if not self.centres:
            raise ValueError("EntropySmoothing.centres is empty; it must hold one number per turn, where 0 is unknown")

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        """For each row the decisions of the minibatch in all and by turn, so that a mean over decisions is one over a turn's."""
        counts = torch.bincount(self._turn_NS(batch)[batch.mask_NS], minlength=len(self.centres))
        totals = [batch.mask_NS.sum(), *counts]
        names = ["turn_counts/all", *(f"turn_counts/{turn}" for turn in range(len(self.centres)))]
        return {name: total.double().expand(batch.shape[0]) for name, total in zip(names, totals, strict=True)}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "turn_counts/all")
        entropy_NS, turn_NS = batch.column("entropy_NS", self), self._turn_NS(batch)
        centre_NS = entropy_NS.new_tensor(self.centres)[turn_NS]
        priced_NS = batch.mask_NS & (centre_NS > 0) & (batch.turns_NS >= self.begin)
        relative_NS = torch.where(priced_NS, entropy_NS / centre_NS.where(priced_NS, 1), self.low)
        below_NS, above_NS = (self.low - relative_NS).clamp(min=0), (relative_NS - self.high).clamp(min=0)
        if self.form == "indicator":
            inside_NS = (relative_NS > self.low) & (relative_NS < self.high)
            price_NS = self.penalty * (priced_NS & ~inside_NS).to(entropy_NS.dtype)
        else:
            price_NS = self.penalty * (below_NS + above_NS)
        metrics = {"entropy/policy": entropy_NS.detach(), "entropy/price": price_NS.detach()}
        for turn in range(len(self.centres)):
            metrics |= {
                f"entropy/turn_{turn}": self._of_turn_NS(turn, batch),
                f"turn_frac/{turn}": self._seen_NS(turn, batch),
            }
        return Terms(self.coef * (self.smoothing * price_NS - entropy_NS), metrics)

    def init(self) -> State:
        seen = {f"steps.{turn}": 0.0 for turn in range(len(self.centres))}
        return seen | {f"centres.{turn}": centre for turn, centre in enumerate(self.centres)}

    def update(self, state: State, metrics: Mapping[str, float]) -> State:
        after = dict(state)
        for turn in range(len(self.centres)):
            entropy, seen = metrics[f"entropy/turn_{turn}"], metrics[f"turn_frac/{turn}"]
            if seen > 0:  # both are means over the step's minibatches, in some of which the turn may be missing
                steps = after[f"steps.{turn}"] = state[f"steps.{turn}"] + 1
                before = state[f"centres.{turn}"] if steps > 1 else 0.0
                after[f"centres.{turn}"] = before + (entropy / seen - before) / steps
        return after

    def recalling(self, state: State) -> EntropySmoothing:
        return replace(self, centres=tuple(state[f"centres.{turn}"] for turn in range(len(self.centres))))

    def _turn_NS(self, batch: TrainBatch) -> Int[Tensor, "N S"]:
        return batch.turns_NS.clamp(0, len(self.centres) - 1)

    def _of_turn_NS(self, turn: int, batch: TrainBatch) -> Float[Tensor, "N S"]:
        """A column whose mean over all decisions is the mean entropy of this turn; 0 of a turn that did not occur."""
        entropy_NS = batch.column("entropy_NS", self).detach()
        count_N, all_N = batch.column(f"turn_counts/{turn}", self), batch.column("turn_counts/all", self)
        own_NS = (entropy_NS * (all_N / count_N.clamp(min=1))[:, None]).where(self._turn_NS(batch) == turn, 0)
        return own_NS.to(entropy_NS.dtype)

    def _seen_NS(self, turn: int, batch: TrainBatch) -> Float[Tensor, "N S"]:
        """1 where this turn occurs in the minibatch, else 0: its mean over a step's minibatches is the share that have the turn."""
        entropy_NS = batch.column("entropy_NS", self)
        seen_N = batch.column(f"turn_counts/{turn}", self) > 0
        return (seen_N[:, None] & batch.mask_NS).to(entropy_NS.dtype)

    def effects(self) -> frozenset[str]:
        return frozenset({ENTROPY})
