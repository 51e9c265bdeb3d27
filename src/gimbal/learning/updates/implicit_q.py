"""Implicit Q learning: values of the better actions of the data, without ever asking for one that is not there."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.base import POLICY, Loss, Models, ModelSpec
from gimbal.learning.updates.off_policy import CRITIC, TARGET, AbstractOffPolicy, counted_of, means, steps_of
from gimbal.policies.control import AbstractControlPolicy
from gimbal.policies.encoded import Encoded
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import TrainBatch

VALUE = "value"


@dataclass(frozen=True, kw_only=True)
class AbstractImplicitQ(AbstractOffPolicy):
    """State values as an expectile over recorded actions, values of actions that back them up, and between the two a policy that
    imitates: as ``imitation`` says.
    """

    critic: ActionValues
    expectile: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.expectile < 1:
            raise ValueError(f"{type(self).__name__}.expectile is {self.expectile}; it is between 0 and 1")

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            VALUE: ModelSpec(
                load=partial(self.critic.of_states, "V"), optimizer=rates.adamw(rates.critic_learning_rate)
            ),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=rates.adamw(rates.critic_learning_rate)),
            TARGET: ModelSpec(follows=CRITIC, rate=self.tau),
        }

    @abstractmethod
    def imitation(self, models: Models, batch: TrainBatch, above_K: Float[Tensor, " K"]) -> Loss:
        """The policy's loss; ``above_K`` is A of each step that counts."""

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy, steps, counted = models.policy, steps_of(batch), counted_of(batch)
        assert isinstance(policy, AbstractControlPolicy)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        action_KA = counted(steps.action_NSA)
        normal_KO = policy.normal(seen_KO)
        with torch.no_grad():
            worth_K = models[TARGET](normal_KO, action_KA).min(-1).values
        value_K = models[VALUE](normal_KO)[:, 0]
        error_K = expectile_loss(worth_K - value_K, self.expectile)
        yield Loss(
            of=(VALUE,),
            value=(weight_K * error_K).sum(),
            metrics=means(weight_K, {"value/loss": error_K, "value/mean": value_K}),
        )
        with torch.no_grad():
            above_K = worth_K - models[VALUE](normal_KO)[:, 0]
        yield self.imitation(models, batch, above_K)

        with torch.no_grad():
            reward_K, discount_K = self.backed(batch)
            target_K = reward_K + discount_K * models[VALUE](policy.normal(counted(steps.next_NSO)))[:, 0]
        # Read again: an encoder is the policy's, which has moved.
        q_KM = models[CRITIC](policy.normal(seen_KO), action_KA)
        apart_K = (q_KM - target_K[:, None]).square().sum(-1)
        yield Loss(
            of=(CRITIC,),
            value=(weight_K * apart_K).sum(),
            metrics=means(weight_K, {"q/loss": apart_K, "q/mean": q_KM.mean(-1), "q/target": target_K}),
        )


@dataclass(frozen=True, kw_only=True)
class ImplicitQ(AbstractImplicitQ):
    """State values as an expectile over recorded actions, and a policy by weighted imitation (IQL, arXiv:2110.06169).

    For each minibatch of steps (o, a, r, o', ended), in this order, w being 1 / their number and A = min_m Q'_m(o, a) - V(o):

        value         sum w |expectile - [A < 0]| A^2,   the gradient only of V
        policy        - sum w min(exp(beta A), most) log pi(a|o)
        critic        sum w sum_m (Q_m(o, a) - y)^2,   y = r + gamma (1 - ended) V(o')

    Q' follows Q by ``tau`` after each move of Q. ``beta`` is per unit of return. ``weight/clipped`` is the share of steps at ``most``.

    - ``expectile`` = 1/2: V is the mean of Q' over the data, and Q belongs to the policy that recorded them (SARSA).
    - ``beta`` = 0: behavior cloning.
    - ``gamma`` = 0: Q is fitted to rewards.

    Published: expectile .7 (locomotion) and .9 (mazes), beta 3 and 10 on rewards scaled to returns of 1000, most 100, tau .005, all
    rates 3e-4, 256 steps per minibatch, networks of 256 x 256, a Gaussian policy whose deviation does not depend on the observation.

    Confidence: verified.
    """

    beta: float = 3.0
    most: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta < math.inf or not self.most > 0:
            raise ValueError(f"ImplicitQ has beta {self.beta} (0 or above) and most {self.most} (above 0)")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Gaussian, SquashedGaussian, Encoded):
            yield Refusal(
                f"ImplicitQ makes recorded actions likelier, and {type(whole.run.policy).__name__} has no density of real actions: "
                "policy='Gaussian(observations=..., actions=...)'"
            )

    def imitation(self, models: Models, batch: TrainBatch, above_K: Float[Tensor, " K"]) -> Loss:
        policy, steps, counted = models.policy, steps_of(batch), counted_of(batch)
        assert isinstance(policy, AbstractControlPolicy)
        weight_K = counted(batch.facts["weight"])
        counts_K = (self.beta * above_K).exp().clamp(max=self.most)
        loss_K = -counts_K * policy.assess(counted(steps.observation_NSO), counted(steps.action_NSA), 1.0)[0]
        told = {"loss": loss_K, "weight/mean": counts_K, "weight/clipped": (counts_K >= self.most).float()}
        return Loss(of=(POLICY,), value=(weight_K * loss_K).sum(), metrics=means(weight_K, told))


def expectile_loss(apart_K: Float[Tensor, " K"], expectile: float) -> Float[Tensor, " K"]:
    """|expectile - [x < 0]| x^2."""
    return torch.where(apart_K < 0, 1 - expectile, expectile) * apart_K.square()
