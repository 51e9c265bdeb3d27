"""An actor-critic that decides every few steps, beside the risk that its reflex reads at every one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import TELLS_RISK, Composition, Refusal, Verdict
from gimbal.config.parts import label, resolve
from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.environments.gym import Gymnasium
from gimbal.environments.held import holds
from gimbal.learning.guardian import broken, misplaced
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.model_learning import fresh_steps
from gimbal.learning.updates.off_policy import (
    CRITIC,
    TARGET,
    AbstractOffPolicy,
    counted_of,
    counting,
    means,
    steps_of,
    summed,
)
from gimbal.learning.updates.soft_actor_critic import ACTS, NEXT, TEMPERATURE, Temperature
from gimbal.ops import stable_hash
from gimbal.policies.ensemble import ActionValueNetwork
from gimbal.policies.reflex import Reflexive, ReflexivePolicy
from gimbal.records import TrainBatch

RISK, RISK_TARGET = "risk", "risk_target"
# The first log-odds of damage: a reflex that acted before it has seen any would see nothing but its own actions.
HARMLESS = -4.0
UNSAFE = "unsafe"  # fact [N, S]: whether the step broke the limit


@dataclass(frozen=True, kw_only=True)
class ReflexActorCritic(AbstractOffPolicy):
    """SAC whose decisions hold for some steps, and the probability of damage, by which a reflex steps in (Bresa, arXiv:2503.21989).

    A step records p, what the task did, and e, what was done (``Reflexive``). The task learns as if p had been done, the risk from e;
    c = 1 where the step breaks the limit that ``unsafe`` says (file.py:function of next observations [K, O], to a bool tensor [K]).
    With p' what the task does in o', which is e again unless a decision is due, and w = 1 / the number of steps:

        critic        sum w sum_m (Q_m(o, p) - y)^2,  y = r - ``price`` c + gamma (1 - ended) (min_m Q'_m(o', p') - alpha log pi(p'|o'))
        risk          sum w sum_m BCE(R_m(o, e), c + (1 - c) (1 - ended) ``foresight`` max_m R'_m(o', p'))
        policy        sum w (alpha log pi(a|o) - min_m Q_m(o, a)),   a ~ pi, in every o as if a decision were due
        temperature   - l sum w (log pi(a|o) + entropy),   alpha = exp(l)

    log pi is 0 where nothing is decided. Q' and R' follow by ``tau``. R is near ``foresight``^k where the task breaks the limit in k
    steps. ``reflex/share`` and ``unsafe/mean`` are the shares of the steps that came in where the reflex acted, and that broke the
    limit; a Lagrangian can move ``price`` by the latter, which is then Lagrangian SAC.

    - ``foresight`` = 0: R is the probability that this very step breaks the limit.
    - ``policy.tolerated`` = 1 and decisions at each step: SAC.
    - ``price`` = 0: the task does not know of the limit; the reflex alone keeps it.

    Ours: all rates and sizes, ``foresight`` .8.

    Confidence: partial; from the card of the paper, whose losses are Recovery RL's (arXiv:2010.15920).
    """

    critic: ActionValues
    unsafe: str | Callable[..., Any]
    foresight: float = 0.8
    price: float = 0.0
    alpha: float = 1.0
    entropy: float | None = None
    temperature_learning_rate: float = 3e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.unsafe, str):
            object.__setattr__(self, "unsafe", label(self.unsafe))
        if ":" not in str(self.unsafe):
            raise ValueError(
                f"ReflexActorCritic.unsafe is {self.unsafe!r}; it is a function of next observations (file.py:function), True where "
                "the limit is broken"
            )
        if not 0 <= self.foresight < 1 or not 0 <= self.price < math.inf:
            raise ValueError(
                f"ReflexActorCritic has foresight {self.foresight} (from 0 to below 1) and price {self.price}, what a broken limit "
                "costs, 0 or above and finite"
            )
        if not 0 < self.alpha < math.inf or not 0 <= self.temperature_learning_rate < math.inf:
            raise ValueError(
                f"ReflexActorCritic has alpha {self.alpha} (above 0) and temperature_learning_rate {self.temperature_learning_rate} "
                "(0 or above)"
            )

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        critic = rates.adamw(rates.critic_learning_rate)
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=critic),
            TARGET: ModelSpec(follows=CRITIC, rate=self.tau),
            RISK: ModelSpec(load=self._risk, optimizer=critic),
            RISK_TARGET: ModelSpec(follows=RISK, rate=self.tau),
            TEMPERATURE: ModelSpec(
                load=lambda seed: Temperature(self.alpha), optimizer=rates.adamw(self.temperature_learning_rate)
            ),
        }

    def _risk(self, seed: int) -> nn.Module:
        critic = self.critic.load(stable_hash(RISK, seed) % 2**63)
        assert isinstance(critic, ActionValueNetwork), "fits refuses blocks"
        nn.init.constant_(critic.biases[-1], HARMLESS)
        return critic

    def effects(self) -> frozenset[str]:
        return frozenset({TELLS_RISK})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        policy, store, tasks = whole.run.policy, whole.run.store, whole.run.tasks
        if not isinstance(policy, Reflexive):
            yield Refusal(
                f"ReflexActorCritic learns what a reflex reads, and {type(policy).__name__} has none: "
                "policy='Reflexive(observations=..., actions=..., bound=...)'"
            )
            return
        yield from misplaced(str(self.unsafe), "update.unsafe", whole)
        if not isinstance(store, Transitions) or store.n > 1 or store.prior is not None:
            yield Refusal(
                "ReflexActorCritic learns from single steps that tell what was decided and what was done: store='Transitions()', with "
                "n=1 and without prior"
            )
        if isinstance(tasks, Gymnasium) and not holds(tasks.source):
            yield Refusal(
                f"Reflexive goes on with the last action, and {tasks.source} shows none: let a function of yours return "
                "gimbal.environments.held.Held(environment, every=10), and set tasks.environment=file.py:function"
            )
        for item in fields(self.critic):
            own, other = vars(self.critic)[item.name], vars(policy).get(item.name, item.default)
            if own != other:
                yield Refusal(
                    f"the policy's reflex reads a copy of the critic of risk, and its {item.name} is {other} where "
                    f"update.critic.{item.name} is {own}: set both alike"
                )

    def begun(self, models: Models) -> None:
        super().begun(models)
        _acting(models).take_risk(models[RISK])  # or the first step would change it without a move

    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        _acting(models).take_risk(models[RISK])
        return {}

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy, (n, s) = _acting(models), batch.shape
        return {name: policy.noise(models.random(name), n * s).reshape(n, s, -1) for name in (ACTS, NEXT)}

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        unsafe_NS = broken(resolve(str(self.unsafe)), steps_of(batch), "update.unsafe").float()
        batch = batch.with_columns({UNSAFE: unsafe_NS})
        paid_NS = batch.column("reward_NS", self) - self.price * unsafe_NS
        told, new = {}, fresh_steps(batch)
        if new is not None:
            decided_NSA, done_NSA = _acting(models).halves(steps_of(new).action_NSA)
            acted = (decided_NSA != done_NSA).any(-1).float().mean()
            told = {"reflex/share": float(acted), "unsafe/mean": float(new.facts[UNSAFE].mean())}
        batch, more = super().prepare(models, batch.with_columns({"reward_NS": paid_NS}))
        return batch, {**more, **told}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy, critic = _acting(models), models[CRITIC]
        steps, counted = steps_of(batch), counted_of(batch)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        decided_KA, done_KA = policy.halves(counted(steps.action_NSA))
        normal_KO, worth_K, risk_K = policy.normal(seen_KO), *self._targets(models, batch)

        q_KM = critic(normal_KO, decided_KA)
        error_K = (q_KM - worth_K[:, None]).square().sum(-1)
        told = {"q/loss": error_K, "q/mean": q_KM.mean(-1), "q/target": worth_K}
        yield Loss(of=(CRITIC,), value=summed(counting(batch, weight_K), error_K), metrics=means(weight_K, told))

        logit_KM = models[RISK](normal_KO, done_KA)
        wanted_KM = risk_K[:, None].expand_as(logit_KM)
        error_K = nn.functional.binary_cross_entropy_with_logits(logit_KM, wanted_KM, reduction="none").sum(-1)
        told = {"risk/loss": error_K, "risk/mean": logit_KM.sigmoid().mean(-1), "risk/target": risk_K}
        yield Loss(of=(RISK,), value=summed(counting(batch, weight_K), error_K), metrics=means(weight_K, told))

        deciding_KO, log_alpha = policy.deciding(seen_KO), models[TEMPERATURE].log
        action_KA, logprob_K = _drawn(policy, deciding_KO, counted(batch.facts[ACTS]))
        alpha = log_alpha.detach().exp()
        loss_K = alpha * logprob_K - critic(policy.normal(deciding_KO), action_KA).min(-1).values
        entropy_K = -logprob_K.detach()
        held = -float(policy.actions) if self.entropy is None else self.entropy
        told = {"loss": loss_K, "entropy/policy": entropy_K, "alpha": alpha.expand_as(loss_K)}
        # Neither term has a gradient of the other's weights: one pass back is enough for both.
        value = summed(weight_K, loss_K) - log_alpha * summed(weight_K, held - entropy_K)
        yield Loss(of=(POLICY, TEMPERATURE), value=value, metrics=means(weight_K, told))

    @torch.no_grad()
    def _targets(self, models: Models, batch: TrainBatch) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        """y, and that of the risk, of each step that counts."""
        policy, steps, counted = _acting(models), steps_of(batch), counted_of(batch)
        next_KO, broken_K = counted(steps.next_NSO), counted(batch.facts[UNSAFE])
        action_KA, logprob_K = _drawn(policy, next_KO, counted(batch.facts[NEXT]))
        normal_KO = policy.normal(next_KO)
        worth_K = models[TARGET](normal_KO, action_KA).min(-1).values
        ahead_K = models[RISK_TARGET](normal_KO, action_KA).sigmoid().max(-1).values
        reward_K, discount_K = self.backed(batch)
        lasting_K = (~counted(steps.ended_NS)).float()
        worth_K = reward_K + discount_K * (worth_K - models[TEMPERATURE].log.exp() * logprob_K)
        return worth_K, broken_K + (1 - broken_K) * lasting_K * self.foresight * ahead_K


def _acting(models: Models) -> ReflexivePolicy:
    policy = models.policy
    assert isinstance(policy, ReflexivePolicy), type(policy)
    return policy


def _drawn(
    policy: ReflexivePolicy, seen_KO: Tensor, noise_KA: Tensor
) -> tuple[Float[Tensor, "K A"], Float[Tensor, " K"]]:
    """What the task does now, and log-probabilities in units of the bound where a decision is due."""
    action_KA, logprob_K = policy.sample(seen_KO, noise_KA)
    return action_KA, logprob_K + policy.due(seen_KO) * policy.actions * math.log(policy.bound)
