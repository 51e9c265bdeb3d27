"""Soft actor-critic: a stochastic policy from action values, learned from any policy's data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.advantages.reward_shaping.priced_cost import PricedCost
from gimbal.composition import TELLS_ERRORS, TELLS_WORTH, Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.critics.return_distribution import ReturnDistribution
from gimbal.dataflow.replay.transitions import Transitions, fresh
from gimbal.learning.optimizers import AdamW
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.off_policy import (
    CRITIC,
    TARGET,
    AbstractOffPolicy,
    counted_of,
    counting,
    least,
    means,
    off_by,
    steps_of,
    summed,
)
from gimbal.policies.squashed import SquashedGaussian, SquashedGaussianPolicy
from gimbal.records import TrainBatch

TEMPERATURE = "temperature"
# Facts: by which the policy draws an action in an observation, and in the one after it.
ACTS, NEXT = "noise/acts", "noise/next"


# Facts: of the actions that are held against the data's.
ANYWHERE, HERE, THERE = "noise/anywhere", "noise/here", "noise/there"
KEPT = {name: f"kept/{name}" for name in ("data", ACTS, NEXT)}  # facts: which units of the critic a pass keeps


class Temperature(nn.Module):
    """alpha = exp(l): the price of a nat of entropy."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(initial)))


def check_temperature(update: object, alpha: float, rate: float) -> None:
    if not 0 < alpha < math.inf or not 0 <= rate < math.inf:
        raise ValueError(
            f"{type(update).__name__} has alpha {alpha}, the first temperature, which is above 0, and temperature_learning_rate "
            f"{rate}, which is 0 or above"
        )


def of_temperature(update: Any) -> AdamW:
    """The optimizer of a learned temperature: without weight decay, which would pull alpha towards 1."""
    return replace(update.optimization.adamw(update.temperature_learning_rate), weight_decay=0.0)


def check_subset(update: object, subset: int, members: int) -> None:
    if not 0 <= subset <= members:
        raise ValueError(
            f"{type(update).__name__}.subset is {subset}: how many of the {members} networks (update.critic.members) a target takes "
            "the least of, or 0: all"
        )


@dataclass(frozen=True, kw_only=True)
class Conservative:
    """Lowers Q on all actions and raises it on the data's actions (CQL(H), arXiv:2006.04779). Added to the critic's loss:

        ``weight`` sum w sum_m (log int exp Q_m(o, a) da - Q_m(o, a_data))

    The integral, over actions in units of the policy's bound, is the mean of exp Q / density over ``actions`` uniform actions, as many
    from pi in o and as many from pi in o'; once the policy moves, they are denser where Q is large.

    - ``weight`` = 0: SAC.

    Published: weight 5, 10 actions of each.

    Confidence: verified; ours: entropy stays in the target, no Lagrange multiplier.
    """

    weight: float = 5.0
    actions: int = 10

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf or self.actions < 1:
            raise ValueError(
                f"Conservative has weight {self.weight} (0 or above) and actions {self.actions} (at least 1)"
            )

    def noises(self, models: Models, count: int) -> dict[str, Tensor]:
        """Of all its actions: [count, n A] each, the first uniform in (-1, 1)."""
        policy = _acting(models)
        own = {
            name: policy.noise(models.random(name), count * self.actions).reshape(count, -1) for name in (HERE, THERE)
        }
        any_KA = models.random(ANYWHERE).uniform(-1, 1, (count, self.actions * policy.actions)).astype(np.float32)
        return {ANYWHERE: torch.from_numpy(any_KA), **own}

    def penalty(self, models: Models, batch: TrainBatch, q_KM: Float[Tensor, "K M"]) -> Float[Tensor, " K"]:
        """Without its weight, of each step that counts; ``q_KM`` are of its own action."""
        policy, steps, counted = _acting(models), steps_of(batch), counted_of(batch)
        count, each = len(q_KM), self.actions
        with torch.no_grad():
            uniform_XA = policy.bound * counted(batch.facts[ANYWHERE]).reshape(count * each, -1)
            drawn = [(uniform_XA, torch.full((count * each,), -policy.actions * math.log(2)))]
            for name, seen_NSO in ((HERE, steps.observation_NSO), (THERE, steps.next_NSO)):
                noise_XA = counted(batch.facts[name]).reshape(count * each, -1)
                drawn.append(_drawn(models, counted(seen_NSO), noise_XA))
            normal_XO = policy.normal(counted(steps.observation_NSO)).repeat_interleave(each, 0)
        # One kind after the other: all at once would leave a processor's cache, and take half as long again.
        found = [models[CRITIC](normal_XO, action_XA) for action_XA, _ in drawn]
        q_KXM = torch.cat([q_XM.reshape(count, each, -1) for q_XM in found], 1)
        logprob_KX = torch.cat([logprob_X.to(q_KM.device).reshape(count, each) for _, logprob_X in drawn], 1)
        total_KM = (q_KXM - logprob_KX[..., None]).logsumexp(1) - math.log(3 * each)
        return (total_KM - q_KM).sum(-1)


@dataclass(frozen=True, kw_only=True)
class SoftActorCritic(AbstractOffPolicy):
    """Maximum-entropy actor-critic with twin Q functions and a temperature that holds the entropy (SAC, arXiv:1812.05905).

    For each minibatch of steps (o, a, r, o', ended), in this order, w being 1 / their number:

        critic        sum w sum_m (Q_m(o, a) - y)^2,   y = r + gamma (1 - ended) (min_m Q'_m(o', a') - alpha log pi(a'|o')),  a' ~ pi
        policy        sum w (alpha log pi(a~|o) - min_m Q_m(o, a~)),   a~ = a~(noise) sampled from pi, with gradient through it
        temperature   - l sum w (log pi(a~|o) + entropy),   alpha = exp(l)

    Q' follows Q: Q' <- Q' + tau (Q - Q') after each move of Q. In log pi, actions are in units of the policy's bound; ``entropy`` is
    the target, by default minus the number of action dimensions. ``conservative`` adds to the critic's loss, for offline data. With n
    steps (``store.n``) y is their discounted rewards and gamma^n. ``subset`` is how many of the Q', drawn anew for each move, y takes
    the least of (0: all); the policy then climbs the mean of all Q (REDQ, arXiv:2101.05982; RLPD, arXiv:2302.02948). With
    ``critic=ReturnDistribution(...)`` its loss and its worth stand for (Q - y)^2 and for min Q (STAC, arXiv:2601.00737).
    ``price`` takes what steps cost from their rewards as they are drawn, by its present multiplier: with Lagrangian on
    ``price.multiplier`` a constraint.

    - ``tau`` = 1: Q' is Q.
    - ``gamma`` = 0: Q is fitted to rewards.
    - ``tune`` off: alpha stays at ``alpha``, SAC as first published. With alpha near 0 and a deterministic policy: DDPG with two Q.
    - log pi = -entropy on average: the temperature stays.
    - ``subset`` = all networks: the critic's loss is that of 0.

    Published: gamma .99, tau .005, all rates 3e-4, 256 steps per minibatch, networks of 256 x 256, one move per environment step.

    Confidence: verified; ours: the order of the three (critic first), each clipped by ``max_grad_norm`` separately.
    """

    critic: ActionValues | ReturnDistribution
    alpha: float = 1.0
    tune: bool = True
    entropy: float | None = None
    temperature_learning_rate: float = 3e-4
    conservative: Conservative | None = None
    subset: int = 0
    price: PricedCost | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self, self.alpha, self.temperature_learning_rate)
        if isinstance(self.critic, ReturnDistribution):
            if self.subset or self.conservative is not None:
                raise ValueError(
                    f"SoftActorCritic has subset {self.subset} and conservative {self.conservative}, and ReturnDistribution is one "
                    "network: leave both out, or set update.critic='ActionValues(observations=..., actions=...)'"
                )
        else:
            check_subset(self, self.subset, self.critic.members)

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=rates.adamw(rates.critic_learning_rate)),
            TARGET: ModelSpec(follows=CRITIC, rate=self.tau),
            TEMPERATURE: ModelSpec(
                load=lambda seed: Temperature(self.alpha), optimizer=of_temperature(self) if self.tune else None
            ),
        }

    def effects(self) -> frozenset[str]:
        return frozenset({TELLS_ERRORS, TELLS_WORTH} if isinstance(self.critic, ActionValues) else ())

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(SquashedGaussian):
            yield Refusal(_unsuitable(type(whole.run.policy).__name__))
        yield from self._judged(whole)
        if self.price is not None and whole.run.learns is not self:
            yield Refusal(
                f"{type(whole.run.learns).__name__} learns from steps of its own making too, which tell no cost: leave the price of "
                "its SoftActorCritic out, or begin with sac_lagrangian"
            )
        elif self.price is not None and any(store.n > 1 for store in whole.all(Transitions)):
            yield Refusal(
                "update.price prices single steps, and store.n adds up rewards of several: set store.n=1, or leave update.price out"
            )

    def _judged(self, whole: Composition) -> Iterator[Verdict]:
        """The policy's judge is a copy of the critic."""
        policy, critic = whole.run.policy, self.critic
        if not isinstance(policy, SquashedGaussian) or not policy.judges or not isinstance(critic, ActionValues):
            return
        wanted = replace(
            critic, hidden=policy.hidden, members=policy.judges, bound=policy.bound, layer_norm=False, blocks=0
        )
        if wanted != critic:
            yield Refusal(
                f"policy.judges is {policy.judges}: so many networks of the critic travel with the policy, in its sizes, and the "
                f"critic is {critic}: let it have the policy's hidden and bound, members={policy.judges}, and neither layer_norm nor "
                "blocks"
            )

    def begun(self, models: Models) -> None:
        super().begun(models)
        self.stepped(models)  # or the first step would change the judge without a move

    def stepped(self, models: Models, batch: TrainBatch | None = None) -> Metrics:
        if (policy := _acting(models)).judge is not None:
            policy.take_judge(models[CRITIC])
        return {}

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        if self.price is None:
            return super().prepare(models, batch)
        came = fresh(batch)
        batch, told = super().prepare(models, batch.with_columns({"reward_NS": self.price(batch)}))
        return batch, {**told, **({} if came is None else self.price.report(came))}

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy = _acting(models)
        n, s = batch.shape
        found = {name: policy.noise(models.random(name), n * s) for name in (ACTS, NEXT)}
        found |= {} if self.conservative is None else self.conservative.noises(models, n * s)
        if isinstance(self.critic, ReturnDistribution) and self.critic.dropout:
            found |= {name: self.critic.kept(models.random(name), n * s) for name in KEPT.values()}
        return {name: noise_KX.reshape(n, s, -1) for name, noise_KX in found.items()}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        critic, log_alpha = models[CRITIC], models[TEMPERATURE].log
        alpha = log_alpha.detach().exp()
        steps, counted = steps_of(batch), counted_of(batch)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        normal_KO = _acting(models).normal(seen_KO)

        target_K = self._target(models, batch)
        q_KM = critic(normal_KO, counted(steps.action_NSA), *_kept(batch, "data"))
        error_K = self.critic.loss(q_KM, target_K)
        loss_K, told = error_K, {"q/loss": error_K, **self.critic.told(q_KM), "q/target": target_K}
        if self.conservative is not None:
            gap_K = self.conservative.penalty(models, batch, q_KM)
            loss_K, told = error_K + self.conservative.weight * gap_K, {**told, "q/gap": gap_K}
        yield Loss(of=(CRITIC,), value=summed(counting(batch, weight_K), loss_K), metrics=means(weight_K, told))
        action_KA, logprob_K = _drawn(models, seen_KO, counted(batch.facts[ACTS]))
        worth_KM = critic(normal_KO, action_KA, *_kept(batch, ACTS))
        worth_K = worth_KM.mean(-1) if self.subset else self.critic.worth(worth_KM)
        loss_K = alpha * logprob_K - worth_K
        entropy_K = -logprob_K.detach()
        metrics = means(weight_K, {"loss": loss_K, "entropy/policy": entropy_K, "alpha": alpha.expand_as(loss_K)})
        value = summed(weight_K, loss_K)
        if not self.tune:
            yield Loss(of=(POLICY,), value=value, metrics=metrics)
            return
        held = -float(action_KA.shape[1]) if self.entropy is None else self.entropy
        # Neither term has a gradient of the other's weights: one pass back is enough for both.
        apart = summed(weight_K, held - entropy_K)
        yield Loss(of=(POLICY, TEMPERATURE), value=value - log_alpha * apart, metrics=metrics)

    @torch.no_grad()
    def errors(self, models: Models, batch: TrainBatch) -> Float[Tensor, " N"]:
        return off_by(models, batch, self._target(models, batch))

    @torch.no_grad()
    def _target(self, models: Models, batch: TrainBatch) -> Float[Tensor, " K"]:
        """y of each step that counts."""
        counted = counted_of(batch)
        next_KO = counted(steps_of(batch).next_NSO)
        action_KA, logprob_K = _drawn(models, next_KO, counted(batch.facts[NEXT]))
        q_KM = models[TARGET](_acting(models).normal(next_KO), action_KA, *_kept(batch, NEXT))
        worth_K = least(models, batch, q_KM, self.subset) if self.subset else self.critic.worth(q_KM)
        reward_K, discount_K = self.backed(batch)
        return reward_K + discount_K * (worth_K - models[TEMPERATURE].log.exp() * logprob_K)


def _kept(batch: TrainBatch, name: str) -> tuple[Tensor, ...]:
    """Which units a pass of the critic keeps, where it leaves some out."""
    return (counted_of(batch)(batch.facts[KEPT[name]]),) if KEPT[name] in batch.facts else ()


def _acting(models: Models) -> SquashedGaussianPolicy:
    policy = models.policy
    if not isinstance(policy, SquashedGaussianPolicy):
        raise ValueError(_unsuitable(type(policy).__name__))
    return policy


def _unsuitable(name: str) -> str:
    return (
        f"SoftActorCritic sends its gradient through sampled actions, but {name} has no such samples: set "
        "policy='SquashedGaussian(observations=..., actions=..., bound=...)'"
    )


def _drawn(models: Models, seen_KO: Tensor, noise_XA: Tensor) -> tuple[Float[Tensor, "X A"], Float[Tensor, " X"]]:
    """Actions of the present policy, and their log-probabilities in units of its bound: so one ``entropy`` fits all environments."""
    policy = _acting(models)
    action_XA, logprob_X = policy.sample(seen_KO, noise_XA)
    return action_XA, logprob_X + policy.actions * math.log(policy.bound)
