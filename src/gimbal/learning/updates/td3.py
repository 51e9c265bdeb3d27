"""TD3: a deterministic policy along the gradient of a value of its actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import MOVE
from gimbal.learning.updates.base import POLICY, Loss, Models, ModelSpec
from gimbal.learning.updates.off_policy import CRITIC, TARGET, AbstractOffPolicy, Explore, counted_of, means, steps_of
from gimbal.policies.deterministic import Deterministic, DeterministicPolicy
from gimbal.records import TrainBatch

TARGET_POLICY = "target_policy"
SMOOTHING = "noise/smoothing"  # fact: of the action in the observation after


@dataclass(frozen=True, kw_only=True)
class TD3(AbstractOffPolicy):
    """Deterministic actor-critic with twin Q functions, smoothed targets and a delayed policy (TD3, arXiv:1802.09477).

    For each minibatch of steps (o, a, r, o', ended), w being 1 / their number and b the policy's bound:

        critic        sum w sum_m (Q_m(o, a) - y)^2,   y = r + gamma (1 - ended) min_m Q'_m(o', a'),
                      a' = clip(pi'(o') + clip(b smoothing e, -b reach, b reach), -b, b),   e ~ N(0, 1)
        policy        - sum w Q_1(o, pi(o)),   at every ``delay``-th move

    Q' and pi' follow Q and pi by ``tau`` after each move of them. What acts adds noise to pi: see ``policies.Deterministic``, whose
    ``explore`` goes from ``explore.first`` to ``explore.last``.

    - ``smoothing`` = 0, ``delay`` = 1, one critic: DDPG.
    - ``gamma`` = 0: Q is fitted to rewards.

    Published: gamma .99, tau .005, delay 2, smoothing .2, reach .5, noise .1, all rates 3e-4 (1e-3 at first), 256 steps a minibatch.

    Confidence: verified; ours: Q' moves with every move of Q, not with the policy's alone, and exploration that falls.
    """

    critic: ActionValues
    delay: int = 2
    smoothing: float = 0.2
    reach: float = 0.5
    explore: Explore = Explore()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delay < 1 or not self.smoothing >= 0 or not self.reach >= 0:
            raise ValueError(
                f"TD3 has delay {self.delay} (moves of the critic for one of the policy, at least 1), smoothing {self.smoothing} and "
                f"reach {self.reach} (shares of the largest action, 0 or above)"
            )

    def explores(self) -> Explore:
        return self.explore

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            TARGET_POLICY: ModelSpec(follows=POLICY, rate=self.tau),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=rates.adamw(rates.critic_learning_rate)),
            TARGET: ModelSpec(follows=CRITIC, rate=self.tau),
        }

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Deterministic):
            yield Refusal(
                f"TD3 sends its gradient through the action of a deterministic policy, and {type(whole.run.policy).__name__} is none: "
                "policy='Deterministic(observations=..., actions=..., bound=...)'"
            )

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy: DeterministicPolicy = models[POLICY]
        n, s = batch.shape
        return {SMOOTHING: policy.noise(models.random(SMOOTHING), n * s).reshape(n, s, -1)}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: DeterministicPolicy = models[POLICY]
        critic, steps, counted = models[CRITIC], steps_of(batch), counted_of(batch)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        normal_KO = policy.normal(seen_KO)
        target_K = self._target(models, batch)
        q_KM = critic(normal_KO, counted(steps.action_NSA))
        error_K = (q_KM - target_K[:, None]).square().sum(-1)
        yield Loss(
            of=(CRITIC,),
            value=(weight_K * error_K).sum(),
            metrics=means(weight_K, {"q/loss": error_K, "q/mean": q_KM.mean(-1), "q/target": target_K}),
        )
        number_N = batch.facts.get(MOVE)
        if number_N is not None and (int(number_N[0]) + 1) % self.delay:
            return
        worth_K = critic(normal_KO, policy.mode(seen_KO))[:, 0]
        yield Loss(of=(POLICY,), value=-(weight_K * worth_K).sum(), metrics=means(weight_K, {"loss": -worth_K}))

    @torch.no_grad()
    def _target(self, models: Models, batch: TrainBatch) -> Float[Tensor, " K"]:
        """y of each step that counts."""
        policy: DeterministicPolicy = models[TARGET_POLICY]
        counted, bound = counted_of(batch), policy.bound
        next_KO = counted(steps_of(batch).next_NSO)
        noise_KA = (self.smoothing * counted(batch.facts[SMOOTHING])).clamp(-self.reach, self.reach)
        action_KA = (policy.mode(next_KO) + bound * noise_KA).clamp(-bound, bound)
        reward_K, discount_K = self.backed(batch)
        return reward_K + discount_K * models[TARGET](policy.normal(next_KO), action_KA).min(-1).values
