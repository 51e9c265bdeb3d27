"""DSRL: values of actions, passed on to the noise that a frozen flow turns into them, and a policy that climbs the latter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import FORWARD, TELLS_ERRORS, Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.base import POLICY, Loss, Models, ModelSpec
from gimbal.learning.updates.off_policy import (
    CRITIC,
    TARGET,
    AbstractOffPolicy,
    counted_of,
    fitted,
    means,
    off_by,
    steps_of,
    summed,
)
from gimbal.learning.updates.soft_actor_critic import (
    ACTS,
    NEXT,
    TEMPERATURE,
    Temperature,
    check_temperature,
    of_temperature,
)
from gimbal.ops import stable_hash
from gimbal.policies.steered import Steered, SteeredPolicy
from gimbal.records import TrainBatch

LATENT = "latent"
PASSED = "noise/passed"  # fact: from which the flow leads to the actions whose values are passed on


@dataclass(frozen=True, kw_only=True)
class SteeredFlow(AbstractOffPolicy):
    """A frozen flow g, steered by the noise that it begins from (DSRL with noise aliasing, arXiv:2506.15799).

    For each minibatch of steps (o, a, r, o', ended), in this order, w being 1 / their number and b the policy's bound:

        critic        sum w sum_m (Q_m(o, a) - y)^2,   y = r + gamma (1 - ended) min_m Q'_m(o', b g(o', z')),   z' ~ pi(.|o')
        latent        sum w sum_m (L_m(o, z) - Q_m(o, b g(o, z)))^2,   z ~ N(0, 1) in each dimension
        policy        sum w (alpha log pi(z~|o) - min_m L_m(o, z~)),   z~ sampled from pi, with gradient through it
        temperature   - l sum w (log pi(z~|o) + ``entropy``),   alpha = exp(l)

    No gradient goes through g, which may be anything that turns noise into actions, and the data need not say which noise an action
    came of: so recorded ones teach as well. Q' follows Q by ``tau``, L has the sizes of Q, and log pi is in units of ``policy.reach``.
    ``latent/error`` is the loss of L for each network, ``steer/size`` the mean of z~ squared, which is 1 of the flow's own noise.

    - pi(.|o) = N(0, 1): the flow as it is, and Q belongs to it.
    - g the identity, in units of ``reach``: actor-critic on actions, with a detour.
    - ``gamma`` = 0: Q is fitted to rewards.

    Published: noise within 1.5, ten moves of L and 20 of Q for one of the policy, ``entropy`` 0, layer norm, at first the flow alone.

    Confidence: partial (the noise by which values are passed on is ours, and one move of each a time).
    """

    critic: ActionValues
    alpha: float = 1.0
    entropy: float = 0.0
    temperature_learning_rate: float = 3e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self, self.alpha, self.temperature_learning_rate)

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD, TELLS_ERRORS})

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        latent = replace(self.critic, bound=1.0)
        of_critic = rates.adamw(rates.critic_learning_rate)
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=of_critic),
            TARGET: ModelSpec(follows=CRITIC, rate=self.tau),
            LATENT: ModelSpec(load=lambda seed: latent.load(stable_hash(LATENT, seed)), optimizer=of_critic),
            TEMPERATURE: ModelSpec(load=lambda seed: Temperature(self.alpha), optimizer=of_temperature(self)),
        }

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Steered):
            yield Refusal(
                f"SteeredFlow chooses the noise of a frozen flow, and {type(whole.run.policy).__name__} has none: "
                "policy='Steered(observations=..., actions=..., bound=..., flow=\"DIRECTORY\")'"
            )

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy: SteeredPolicy = models[POLICY]
        n, s = batch.shape
        passed_NSA = models.random(PASSED).standard_normal((n, s, policy.actions), dtype=np.float32)
        found = {name: policy.noise(models.random(name), n * s).reshape(n, s, -1) for name in (ACTS, NEXT)}
        return {**found, PASSED: torch.from_numpy(passed_NSA)}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: SteeredPolicy = models[POLICY]
        critic, latent, log_alpha = models[CRITIC], models[LATENT], models[TEMPERATURE].log
        steps, counted = steps_of(batch), counted_of(batch)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        normal_KO = policy.normal(seen_KO)

        yield fitted(models, batch, normal_KO, self._target(models, batch))

        passed_KA = counted(batch.facts[PASSED])
        with torch.no_grad():
            goal_KM = critic(normal_KO, policy.act(seen_KO, passed_KA))
        apart_KM = (latent(normal_KO, passed_KA) - goal_KM).square()
        told = means(weight_K, {"latent/error": apart_KM.mean(-1)})
        yield Loss(of=(LATENT,), value=summed(weight_K, apart_KM.sum(-1)), metrics=told)

        chosen_KA, logprob_K = policy.choose(seen_KO, counted(batch.facts[ACTS]))
        loss_K = log_alpha.detach().exp() * logprob_K - latent(normal_KO, chosen_KA).min(-1).values
        size_K = chosen_KA.square().mean(-1)
        told = {"loss": loss_K, "entropy/noise": -logprob_K, "steer/size": size_K}
        metrics = means(weight_K, told | {"alpha": log_alpha.exp().expand_as(loss_K)})
        # Neither term has a gradient of the other's weights: one pass back is enough for both.
        apart = summed(weight_K, logprob_K.detach() + self.entropy)
        yield Loss(of=(POLICY, TEMPERATURE), value=summed(weight_K, loss_K) - log_alpha * apart, metrics=metrics)

    @torch.no_grad()
    def errors(self, models: Models, batch: TrainBatch) -> Float[Tensor, " N"]:
        return off_by(models, batch, self._target(models, batch))

    @torch.no_grad()
    def _target(self, models: Models, batch: TrainBatch) -> Float[Tensor, " K"]:
        """y of each step that counts."""
        policy: SteeredPolicy = models[POLICY]
        counted = counted_of(batch)
        next_KO = counted(steps_of(batch).next_NSO)
        chosen_KA, _ = policy.choose(next_KO, counted(batch.facts[NEXT]))
        q_KM = models[TARGET](policy.normal(next_KO), policy.act(next_KO, chosen_KA))
        reward_K, discount_K = self.backed(batch)
        return reward_K + discount_K * q_KM.min(-1).values
