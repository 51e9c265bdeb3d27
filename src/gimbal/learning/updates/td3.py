"""TD3: a deterministic policy along the gradient of a value of its actions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import TELLS_ERRORS, Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.transitions import MOVE, Transitions
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.better_actions import BetterActions
from gimbal.learning.updates.off_policy import (
    CRITIC,
    TARGET,
    AbstractOffPolicy,
    Explore,
    counted_of,
    fitted,
    means,
    off_by,
    steps_of,
    summed,
)
from gimbal.policies.clipped import AbstractClippedPolicy
from gimbal.policies.deterministic import Deterministic
from gimbal.policies.frozen_base import Residual, ResidualPolicy
from gimbal.records import TrainBatch

TARGET_POLICY = "target_policy"
SMOOTHING = "noise/smoothing"  # fact: of the action in the observation after
SCALE = "imitation/scale"  # fact: lambda, what a unit of value counts beside imitation


@dataclass(frozen=True, kw_only=True)
class Imitation:
    """Holds the policy to the data's actions (TD3+BC, arXiv:2106.06860):

        policy        sum w (- lambda Q_1(o, pi(o)) + mean_A ((pi(o) - a) / b)^2),   lambda = ``alpha`` / sum w |Q_1(o, pi(o))|

    lambda is constant within a move, from Q_1 before it.

    ``better``: it is held to what may be better than a, by as much as advantages say (A2PR).

    - ``alpha`` = 0: behavior cloning.
    - ``alpha`` to infinity: TD3, whose gradient is the first term's up to scale.

    Published: alpha 2.5, observations in units of their own spread (``policy.normalize``).

    Confidence: verified.
    """

    alpha: float = 2.5
    better: BetterActions | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < math.inf:
            raise ValueError(
                f"Imitation.alpha is {self.alpha}; it weights value against the data, 0 or above (imitation=None: TD3)"
            )


@dataclass(frozen=True, kw_only=True)
class TD3(AbstractOffPolicy):
    """Deterministic actor-critic with twin Q functions, smoothed targets and a delayed policy (TD3, arXiv:1802.09477).

    For each minibatch of steps (o, a, r, o', ended), w being 1 / their number and b the policy's bound:

        critic        sum w sum_m (Q_m(o, a) - y)^2,   y = r + gamma (1 - ended) min_m Q'_m(o', a'),
                      a' = clip(pi'(o') + clip(b smoothing e, -b reach, b reach), -b, b),   e ~ N(0, 1)
        policy        - sum w Q_1(o, pi(o)),   at every ``delay``-th move; with ``policy.foresight`` + sum w its loss on (o, a, o'),
                      which is alone at every move of the burn-in

    Q' and pi' follow Q and pi by ``tau`` after each move of them. The sampler adds noise to pi: see ``policies.Deterministic``,
    whose ``explore`` goes from ``explore.first`` to ``explore.last``. ``imitation`` holds pi to recorded actions, for offline data. The
    first ``burn_in`` moves are of Q alone: a pi that is good at the start would follow a Q that knows nothing (arXiv:1812.06298).

    - ``smoothing`` = 0, ``delay`` = 1, one critic: DDPG.
    - ``gamma`` = 0: Q is fitted to rewards.

    Published: gamma .99, tau .005, delay 2, smoothing .2, reach .5, noise .1, all rates 3e-4 (1e-3 at first), 256 steps a minibatch.

    Confidence: verified; ours: Q' moves with every move of Q, not only the policy's, and exploration decays.
    """

    critic: ActionValues
    delay: int = 2
    smoothing: float = 0.2
    reach: float = 0.5
    explore: Explore = Explore()
    imitation: Imitation | None = None
    burn_in: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.burn_in < 0:
            raise ValueError(
                f"TD3.burn_in is {self.burn_in}; it is how many times the critic moves before the policy does, 0 or more"
            )
        if self.delay < 1 or not self.smoothing >= 0 or not self.reach >= 0:
            raise ValueError(
                f"TD3 has delay {self.delay} (moves of the critic for one of the policy, at least 1), smoothing {self.smoothing} and "
                f"reach {self.reach} (shares of the largest action, 0 or above)"
            )

    def explores(self) -> Explore:
        return self.explore

    @property
    def _better(self) -> BetterActions | None:
        return None if self.imitation is None else self.imitation.better

    def models(self) -> dict[str, ModelSpec]:
        rates, better = self.optimization, self._better
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            TARGET_POLICY: ModelSpec(follows=POLICY, rate=self.tau),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=rates.adamw(rates.critic_learning_rate)),
            TARGET: ModelSpec(follows=CRITIC, rate=self.tau),
            **({} if better is None else better.models(self.critic, rates)),
        }

    def effects(self) -> frozenset[str]:
        return frozenset({TELLS_ERRORS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Deterministic, Residual):
            yield Refusal(
                f"TD3 sends its gradient through actions of a deterministic policy, but {type(whole.run.policy).__name__} is not one: "
                "set policy='Deterministic(observations=..., actions=..., bound=...)'"
            )
        policy, store = whole.run.policy, whole.run.store
        if isinstance(policy, Residual) and policy.foresight and isinstance(store, Transitions) and store.n > 1:
            yield Refusal(
                f"policy.foresight learns what follows a single step, but store.n is {store.n}: set store.n=1, or policy.foresight=none"
            )
        if self.burn_in and not whole.has(Transitions, Recordings):
            yield Refusal(
                "update.burn_in counts the moves that a store samples, and there is none: store='Transitions()', or update.burn_in=0"
            )

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy: AbstractClippedPolicy = models[POLICY]
        n, s = batch.shape
        own = {SMOOTHING: policy.noise(models.random(SMOOTHING), n * s).reshape(n, s, -1)}
        return own if self._better is None else own | self._better.noises(models, batch, policy.actions)

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: AbstractClippedPolicy = models[POLICY]
        critic, steps, counted = models[CRITIC], steps_of(batch), counted_of(batch)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        normal_KO = policy.normal(seen_KO)
        target_K = self._target(models, batch)
        yield fitted(models, batch, normal_KO, target_K)
        if (better := self._better) is not None:
            target_K = torch.minimum(target_K, self._target(models, batch, CRITIC))  # by the critic that has just moved
            yield from better.losses(models, batch, normal_KO, target_K, policy.bound)
        alone = MOVE in batch.facts and int(batch.facts[MOVE][0]) < self.burn_in
        if alone and isinstance(policy, ResidualPolicy) and policy.foresight is not None:  # the correction is still 0
            off_K = foreseen(policy, batch)
            value, told = policy.foresight.weight * summed(weight_K, off_K), means(weight_K, {"foresight/error": off_K})
            yield Loss(of=(POLICY,), value=value, metrics=told)
        if not self._acts(batch):
            return
        mode_KA = policy.mode(seen_KO)
        worth_K = critic(normal_KO, mode_KA)[:, 0]
        loss_K, told = -worth_K, {}
        if isinstance(policy, ResidualPolicy):
            told["residual/size"] = ((mode_KA - policy.of_base(seen_KO)) / policy.bound).abs().mean(-1)
            if policy.foresight is not None:
                told["foresight/error"] = off_K = foreseen(policy, batch)
                loss_K = loss_K + policy.foresight.weight * off_K
        if self.imitation is not None:
            aim_KA, scale_K = counted(steps.action_NSA), counted(batch.facts[SCALE])
            told, count_K = {**told, "imitation/scale": scale_K}, 1.0
            if better is not None:
                aim_KA, count_K, chosen_K = better.aim(models, batch, normal_KO, mode_KA, policy.bound)
                told |= {"better/share": chosen_K, "better/weight": count_K}
            error_K = ((mode_KA - aim_KA) / policy.bound).square().mean(-1)
            told["imitation/error"] = error_K
            loss_K = count_K * error_K - scale_K * worth_K
        yield Loss(of=(POLICY,), value=summed(weight_K, loss_K), metrics=means(weight_K, {"loss": loss_K, **told}))

    def _acts(self, batch: TrainBatch) -> bool:
        """Whether this move is one of the policy too."""
        number_N = batch.facts.get(MOVE)
        if number_N is None:
            return True
        number = int(number_N[0])
        return number >= self.burn_in and not (number + 1) % self.delay

    @torch.no_grad()
    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        minibatch, told = super().survey(models, minibatch)
        if self.imitation is None or not self._acts(minibatch):
            return minibatch, told
        policy: AbstractClippedPolicy = models[POLICY]
        counted = counted_of(minibatch)
        seen_KO = counted(steps_of(minibatch).observation_NSO)
        size_K = models[CRITIC](policy.normal(seen_KO), policy.mode(seen_KO))[:, 0].abs()
        scale = self.imitation.alpha / (counted(minibatch.facts["weight"]) * size_K).sum().clamp(min=1e-9)
        return minibatch.with_columns({SCALE: scale.expand(minibatch.shape)}), told

    @torch.no_grad()
    def errors(self, models: Models, batch: TrainBatch) -> Float[Tensor, " N"]:
        return off_by(models, batch, self._target(models, batch))

    @torch.no_grad()
    def _target(self, models: Models, batch: TrainBatch, by: str = TARGET) -> Float[Tensor, " K"]:
        """y of each step that counts, by this critic."""
        policy: AbstractClippedPolicy = models[TARGET_POLICY]
        counted, bound = counted_of(batch), policy.bound
        next_KO = counted(steps_of(batch).next_NSO)
        noise_KA = (self.smoothing * counted(batch.facts[SMOOTHING])).clamp(-self.reach, self.reach)
        action_KA = (policy.mode(next_KO) + bound * noise_KA).clamp(-bound, bound)
        reward_K, discount_K = self.backed(batch)
        return reward_K + discount_K * models[by](policy.normal(next_KO), action_KA).min(-1).values


def foreseen(policy: ResidualPolicy, batch: TrainBatch) -> Float[Tensor, " K"]:
    """How far off its model is of what the actions of these steps led to."""
    assert policy.foresight is not None
    steps, counted = steps_of(batch), counted_of(batch)
    seen_KO, next_KO = (policy.normal(counted(x)) for x in (steps.observation_NSO, steps.next_NSO))
    return policy.foresight.error(seen_KO, counted(steps.action_NSA) / policy.bound, next_KO)
