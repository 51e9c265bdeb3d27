"""A price on what each step costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractRewardShaping
from gimbal.records import TrainBatch

COST_AFTER = "cost/after"  # fact [N, S]: what the environment says that each action has cost


@dataclass(frozen=True, kw_only=True)
class PricedCost(AbstractRewardShaping):
    """The reward of a step minus a multiple of its cost: a constraint on the mean cost by its Lagrangian (RCPO, arXiv:1805.11074).

        r <- (r - multiplier c) / (1 + multiplier)

    c is what the environment says in ``info["cost"]``, and stays beside the reward in rows and buffers, so that old steps are priced
    by the present multiplier. ``cost/step`` is the mean c of the steps that came in, by which Lagrangian moves ``multiplier``: towards
    the least price at which it is at most ``limit``. A limit on the cost of an episode is that number divided by its steps.

    - ``multiplier`` = 0: the rewards as they are.
    - ``multiplier`` to infinity: -c.
    - no costs: the rewards, in units of 1 + ``multiplier``.

    Published: PPO, one critic of the priced reward, the multiplier slower than both. With a critic of costs of its own it would be
    PPO-Lagrangian as in Safety Gym (Ray et al. 2019): advantages are linear in rewards, so both have the same policy gradient
    where critics are exact; one critic has to learn again what a new price means.

    Confidence: partial; from secondary sources; ours: the division, which keeps the size of rewards.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS"})

    multiplier: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.multiplier < math.inf:
            raise ValueError(
                f"PricedCost.multiplier is {self.multiplier}; it is what a cost of 1 takes from the reward: 0 or above, and finite"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return (batch.column("reward_NS", self) - self.multiplier * self._cost_NS(batch)) / (1 + self.multiplier)

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        return {"cost/step": float(ops.masked_mean(self._cost_NS(batch), batch.mask_NS))}

    def _cost_NS(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        if COST_AFTER not in batch.facts:
            raise ValueError(
                "PricedCost prices what steps cost, and these tell no cost: let the environment's step return info={'cost': number}, "
                "or leave PricedCost out"
            )
        cost_NS = batch.column(COST_AFTER, self)
        if not bool(cost_NS.isfinite().all()):
            raise ValueError(
                "PricedCost prices what steps cost, and some of these tell none, as do recorded episodes without infos/cost: give data "
                "that have it, or leave store.prior out"
            )
        return cost_NS
