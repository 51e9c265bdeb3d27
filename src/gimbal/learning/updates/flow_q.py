"""Flow Q-learning: a flow imitates the data, and a policy of one step stays near it while it climbs the value of its actions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.base import POLICY, Loss, Models, ModelSpec
from gimbal.learning.updates.off_policy import CRITIC, TARGET, AbstractOffPolicy, counted_of, means, steps_of
from gimbal.ops import stable_hash
from gimbal.policies.flow import Velocity
from gimbal.policies.one_step import OneStep, OneStepPolicy
from gimbal.records import TrainBatch

FLOW = "flow"
# Facts: the noise that a flow to the action begins at, and how far it is seen.
START, TIME = "noise/start", "noise/time"
# By which the policy draws an action in an observation, and in the one after it.
ACTS, NEXT = "noise/acts", "noise/next"


def cloning_noises(models: Models, batch: TrainBatch, actions: int) -> dict[str, Tensor]:
    """What ``Velocity.apart`` draws for each action: where the way to it begins, and where on it the flow is asked."""
    n, s = batch.shape
    start_NSA = models.random(START).standard_normal((n, s, actions), dtype=np.float32)
    time_NS1 = models.random(TIME).random((n, s, 1), dtype=np.float32)
    return {START: torch.from_numpy(start_NSA), TIME: torch.from_numpy(time_NS1)}


@dataclass(frozen=True, kw_only=True)
class FlowQ(AbstractOffPolicy):
    """Behavior cloning by a flow, and a one-step policy between its imitation and the value of actions (FQL, arXiv:2502.02538).

    For each minibatch of steps (o, a, r, o', ended), in this order, w being 1 / their number and b the policy's bound, with x_0, z and
    z' ~ N(0, 1) in each dimension and t uniform in [0, 1):

        critic        sum w mean_m (Q_m(o, a) - y)^2,   y = r + gamma (1 - ended) mean_m Q'_m(o', a'),   a' = b clip(f(o', z'), -1, 1)
        flow          sum w mean_A (v(o, x_t, t) - (a / b - x_0))^2,   x_t = (1 - t) x_0 + t a / b
        policy        sum w (alpha mean_A (f(o, z) - F(o, z))^2 - mean_m Q_m(o, b clip(f(o, z), -1, 1)))

    F(o, z) follows v from z, at t = 0, to t = 1 in ``flow_steps`` Euler steps, and is clipped to [-1, 1]. No gradient goes through
    it: the flow clones the data, whatever they earn. v has the sizes of the critic. Q' follows Q by ``tau``.

    - ``alpha`` to infinity: the policy's gradient is that of distilling the flow, behavior cloning in one step.
    - ``alpha`` = 0: DDPG with a policy that draws.
    - ``gamma`` = 0: Q is fitted to rewards.

    Published: alpha 10, to be tuned to the task (3 to 3000), 10 flow_steps, gamma .99, tau .005, all rates 3e-4, 256 steps a minibatch,
    two critics with layer norm, networks of 4 x 512 with GELU.

    Confidence: verified; ours: the order of the three (critic first), ReLU, no further scaling by the size of Q.
    """

    critic: ActionValues
    alpha: float = 10.0
    flow_steps: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha < math.inf or self.flow_steps < 1:
            raise ValueError(
                f"FlowQ has alpha {self.alpha}, which weights imitation against value (0 or above), and flow_steps {self.flow_steps} "
                "(at least 1)"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        others = rates.adamw(rates.critic_learning_rate)
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            FLOW: ModelSpec(load=self.flow, optimizer=others),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=others),
            TARGET: ModelSpec(follows=CRITIC, rate=self.tau),
        }

    def flow(self, seed: int) -> Velocity:
        sizes = (self.critic.observations, self.critic.actions, self.critic.hidden)
        return Velocity(*sizes, stable_hash(FLOW, seed) % 2**63)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(OneStep):
            yield Refusal(
                f"FlowQ distils a flow into a policy that reads its noise, and {type(whole.run.policy).__name__} reads none: "
                "policy='OneStep(observations=..., actions=..., bound=...)'"
            )

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy: OneStepPolicy = models[POLICY]
        n, s = batch.shape
        found = {name: policy.noise(models.random(name), n * s).reshape(n, s, -1) for name in (ACTS, NEXT)}
        return cloning_noises(models, batch, policy.actions) | found

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: OneStepPolicy = models[POLICY]
        critic, flow, steps, counted = models[CRITIC], models[FLOW], steps_of(batch), counted_of(batch)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        normal_KO, action_KA = policy.normal(seen_KO), counted(steps.action_NSA)
        told = partial(means, weight_K)

        target_K = self._target(models, batch)
        q_KM = critic(normal_KO, action_KA)
        error_K = (q_KM - target_K[:, None]).square().mean(-1)
        metrics = told({"q/loss": error_K, "q/mean": q_KM.mean(-1), "q/target": target_K})
        yield Loss(of=(CRITIC,), value=(weight_K * error_K).sum(), metrics=metrics)

        start_KA, time_K1 = counted(batch.facts[START]), counted(batch.facts[TIME])
        error_K = flow.apart(normal_KO, action_KA / policy.bound, start_KA, time_K1)
        yield Loss(of=(FLOW,), value=(weight_K * error_K).sum(), metrics=told({"flow/loss": error_K}))

        noise_KA = counted(batch.facts[ACTS])
        with torch.no_grad():
            imitated_KA = flow.end(normal_KO, noise_KA, self.flow_steps)
        share_KA = policy.shares(seen_KO, noise_KA)
        error_K = (share_KA - imitated_KA).square().mean(-1)
        worth_K = critic(normal_KO, policy.bound * share_KA.clamp(-1, 1)).mean(-1)
        loss_K = self.alpha * error_K - worth_K
        metrics = told({"loss": loss_K, "imitation/error": error_K, "q/policy": worth_K})
        yield Loss(of=(POLICY,), value=(weight_K * loss_K).sum(), metrics=metrics)

    @torch.no_grad()
    def _target(self, models: Models, batch: TrainBatch) -> Float[Tensor, " K"]:
        """y of each step that counts."""
        policy: OneStepPolicy = models[POLICY]
        counted = counted_of(batch)
        next_KO = counted(steps_of(batch).next_NSO)
        action_KA = policy.act(next_KO, counted(batch.facts[NEXT]))
        reward_K, discount_K = self.backed(batch)
        return reward_K + discount_K * models[TARGET](policy.normal(next_KO), action_KA).mean(-1)
