"""Advantages from a critic of turns, not tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.estimators.gae import GAE
from gimbal.composition import FITS_TURNS, READS_TURNS, Advice, Composition, Verdict
from gimbal.ops.discounted import generalised_advantages
from gimbal.ops.levels import first_of_turn
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class TurnGAE(AbstractAdvantage):
    """GAE over turns: one value and one advantage per turn, regardless of its length (VL-DAC, arXiv:2508.04280).

    delta_k = r_k + gamma V_{k+1} - V_k;  A_k = sum_l (gamma lam)^l delta_{k+l}, for every decision of turn k; r_k is the sum of the
    turn's rewards and V_k the value at its first decision, before any of the turn is written. Train the critic only there
    (TurnValueLoss). Tokens within a turn are not discounted, and thought and action need no weights.

    - turns of one decision: GAE.
    - one turn, V = 0: the sum of the rewards.
    - ``gamma`` = ``lam`` = 1: token-level GAE with V_k at all decisions of the turn, where rewards come at the ends of turns.

    After the last turn V is ``bootstrap_N``: a time limit is not a termination.

    Published: ``gamma`` .9, ``lam`` .95, with Whitened(level="turn").

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = GAE.needs

    gamma: float = 0.9
    lam: float = 0.95

    def __post_init__(self) -> None:
        GAE(gamma=self.gamma, lam=self.lam)  # the same numbers, refused alike

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        first_NS = first_of_turn(batch.turns_NS, batch.mask_NS)
        reward_NS = ops.pooled(batch.column("reward_NS", self), batch.mask_NS, "turn", batch.turns_NS, "sum")
        value_NS, bootstrap_N = batch.column("value_NS", self), batch.column("bootstrap_N", self)
        turn_NS = generalised_advantages(reward_NS, value_NS, bootstrap_N, first_NS, self.gamma, self.lam)
        return ops.pooled(turn_NS, batch.mask_NS, "turn", batch.turns_NS, "sum")

    def effects(self) -> frozenset[str]:
        return frozenset({READS_TURNS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(FITS_TURNS):
            yield Advice(
                "TurnGAE reads values at the first decisions of turns and TurnValueLoss fits them only there: use both or neither"
            )
