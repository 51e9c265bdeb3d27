"""DQN: the values of choices, learned from any policy's data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import TELLS_ERRORS, Composition, Refusal, Verdict
from gimbal.learning.updates.base import POLICY, Loss, Models, ModelSpec
from gimbal.learning.updates.off_policy import (
    TARGET,
    AbstractOffPolicy,
    Explore,
    counted_of,
    counting,
    means,
    steps_of,
    summed,
)
from gimbal.policies.greedy import Greedy, GreedyPolicy
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class DQN(AbstractOffPolicy):
    """Q-learning with a network (DQN, Mnih et al. 2015) and double Q-learning targets (arXiv:1509.06461).

    For each minibatch of steps (o, a, r, o', ended), w being 1 / their number; h is x^2 / 2 up to |x| = ``huber``, and linear beyond:

        policy        sum w h(Q(o, a) - y),   y = r + gamma (1 - ended) V(o')
        V(o') = (1 - ``chance``) Q'(o', argmax_a Q(o', a)) + ``chance`` mean_a Q'(o', a)

    Q is the policy: it takes its best choice, or with probability ``explore`` any (``policies.Greedy``). Q' follows it by ``tau``
    after each move.

    - ``chance`` = 0, the default: Q-learning. ``chance`` = 1: Q is what follows a choice where all others are made by chance (random
      policy valuation, ROVER, arXiv:2509.24981, and the attacker of DAERT): with a ``value_temperature`` of the policy, a choice is the
      likelier the more ways there are behind it that pay, so that none is given up.
    - ``double`` off: max_a Q'(o', a) in place of Q'(o', argmax_a Q(o', a)), DQN as first published.
    - ``gamma`` = 0: Q is fitted to rewards.

    Published: ``huber`` = 1 on rare rewards of at most 1, Q' copied every 10,000 moves, explore 1 to .1 over a million steps. Where
    returns reach 100, an unexpected end is an error of 100, and ``huber`` = 1 hardly responds to it.

    Confidence: verified; ours: Q' follows by ``tau``. Of ``chance`` partial: DAERT from its card, which had the abstract alone.
    """

    double: bool = True
    chance: float = 0.0
    huber: float = math.inf
    explore: Explore = Explore(last=0.05, over=10_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.huber > 0:
            raise ValueError(f"DQN has huber {self.huber}; it is above 0 (inf: squares)")
        if not 0 <= self.chance <= 1:
            raise ValueError(
                f"DQN has chance {self.chance}; it is how often later choices are made by chance, from 0 to 1"
            )

    def explores(self) -> Explore:
        return self.explore

    def models(self) -> dict[str, ModelSpec]:
        return {
            POLICY: ModelSpec(optimizer=self.optimization.of_policy()),
            TARGET: ModelSpec(follows=POLICY, rate=self.tau),
        }

    def effects(self) -> frozenset[str]:
        return frozenset({TELLS_ERRORS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Greedy):
            yield Refusal(
                f"DQN learns the values of choices, and {type(whole.run.policy).__name__} has none: "
                "policy='Greedy(observations=..., actions=...)'"
            )

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: GreedyPolicy = models[POLICY]
        weight_K = counted_of(batch)(batch.facts["weight"])
        target_K = self._target(models, batch)
        q_K = _taken(policy, batch)
        error_K = (q_K - target_K).abs()
        near_K = error_K.clamp(max=self.huber)
        loss_K = near_K * (error_K - near_K / 2)
        yield Loss(
            of=(POLICY,),
            value=summed(counting(batch, weight_K), loss_K),
            metrics=means(weight_K, {"loss": loss_K, "q/mean": q_K, "q/target": target_K}),
        )

    @torch.no_grad()
    def errors(self, models: Models, batch: TrainBatch) -> Float[Tensor, " N"]:
        return (_taken(models[POLICY], batch) - self._target(models, batch)).abs()

    @torch.no_grad()
    def _target(self, models: Models, batch: TrainBatch) -> Float[Tensor, " K"]:
        """y of each step that counts."""
        next_KO = counted_of(batch)(steps_of(batch).next_NSO)
        worth_KV = models[TARGET].values(next_KO)
        chooses_KV = models[POLICY].values(next_KO) if self.double else worth_KV
        reward_K, discount_K = self.backed(batch)
        best_K = worth_KV.gather(-1, chooses_KV.argmax(-1, keepdim=True))[:, 0]
        after_K = (1 - self.chance) * best_K + self.chance * worth_KV.mean(-1) if self.chance else best_K
        return reward_K + discount_K * after_K


def _taken(policy: GreedyPolicy, batch: TrainBatch) -> Float[Tensor, " K"]:
    """The values of the choices that were taken."""
    steps, counted = steps_of(batch), counted_of(batch)
    return policy.values(counted(steps.observation_NSO)).gather(-1, counted(steps.action_NSA))[:, 0]
