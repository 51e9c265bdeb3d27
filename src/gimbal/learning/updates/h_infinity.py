"""Two policies in one environment: one for the task, and one that disturbs it and pays for how strongly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal import ops
from gimbal.advantages.estimators.gae import GAE
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.critics.base import AbstractCritic
from gimbal.critics.mlp import ValueMLP
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Metrics, Models, ModelSpec
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.ops import stable_hash
from gimbal.policies.control import Steps, real_of
from gimbal.policies.disturbed import Disturbed, DisturbedPolicy
from gimbal.records import TrainBatch

CRITIC, EXCESS = "critic", "excess"  # the models of V and of V_K
ACTOR, DISTURBER = "actor", "disturber"


@dataclass(frozen=True, kw_only=True)
class HInfinity(AbstractUpdate):
    """PPO for a policy and its disturber, who may cost as much as its force is worth (H-infinity locomotion, arXiv:2404.14405).

    A step earns R_t. C_t = ``best`` - R_t is its cost, |d_t| the size of the disturbance (Euclidean; each number clipped to [-1, 1], as
    environments take it), and K_t = C_t - ``attenuation`` |d_t| what the cost exceeds the force by. A_R and A_K are the advantages
    (``advantage``) by the critics V of R and V_K of K, w is 1 / the number of steps:

        actor       sum w clipped(ratio of its actions, whitened (A_R - ``multiplier`` A_K) / (1 + ``multiplier``))
        disturber   sum w clipped(ratio of its disturbances, whitened A_K)
        critics     sum w (V - (A_R + V_old))^2 / 2,   sum w (V_K - (A_K + V_K,old))^2 / 2

    The constraint is that the sum of K is at most 0: the costs at most ``attenuation`` times the forces. Lagrangian moves
    ``multiplier`` by ``excess/mean``, the mean K of a step. Where an episode ends nothing is earned after it: K is ``best`` for ever.
    ``gain`` is what the constraint bounds: the sum of C over that of |d|.

    - ``attenuation`` = 0 and ``multiplier`` = 0: PPO against an adversary whose force is free (arXiv:1703.02702, both at once).
    - ``attenuation`` to infinity: the disturber learns to be still.
    - ``multiplier`` to infinity: the actor learns by -A_K alone, which is A_R + ``attenuation`` A_|d| where no episode ends: near A_R,
      so what the constraint changes is mostly what ends cost.

    Confidence: partial; from the card of the paper; ours: ``best`` after an end, K's own critic, both policies in one step, the sizes.
    """

    critic: ValueMLP
    attenuation: float = 1.0
    multiplier: float = 0.0
    best: float = 0.0
    advantage: GAE = GAE(gamma=0.99, lam=0.95)
    objective: ClippedRatio = ClippedRatio()

    def __post_init__(self) -> None:
        numbers = {name: vars(self)[name] for name in ("attenuation", "multiplier")}
        if wrong := [f"{name} {value}" for name, value in numbers.items() if not 0 <= value < math.inf]:
            raise ValueError(f"HInfinity has {' and '.join(wrong)}; it must be 0 or above, and finite")
        if self.advantage.gamma == 1:
            raise ValueError(
                "HInfinity has advantage.gamma 1, by which an episode that ends would cost without limit: set it below 1"
            )

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        critic = rates.adamw(rates.critic_learning_rate)
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=critic),
            EXCESS: ModelSpec(load=self._excess, optimizer=critic),
        }

    def _excess(self, seed: int) -> nn.Module:
        return self.critic.load(stable_hash(EXCESS, seed) % 2**63)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Disturbed):
            yield Refusal(
                f"HInfinity teaches a policy and its disturber, and {type(whole.run.policy).__name__} has none: "
                "policy='Disturbed(observations=..., actions=..., disturbances=...)'"
            )

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        batch = batch.to(models.device)
        steps, policy, mask_NS = batch.decisions, models.policy, batch.mask_NS
        assert isinstance(steps, Steps) and isinstance(policy, DisturbedPolicy), type(policy)
        reward_NS = batch.column("reward_NS", self)
        size_NS = policy.halves(steps.action_NSA)[1].clamp(-1, 1).norm(dim=-1).where(mask_NS, 0)
        cost_NS = (self.best - reward_NS).where(mask_NS, 0)
        excess_NS = cost_NS - self.attenuation * size_NS
        # After an end each step costs `best`; the critic's own value there is 0.
        ever = self.best / (1 - self.advantage.gamma)
        paid, said = {CRITIC: reward_NS, EXCESS: excess_NS}, {}
        for name, own_NS in paid.items():
            held = models.in_micro_batches(batch, models[name].columns)
            after_N = held["bootstrap_N"]
            if name == EXCESS:
                after_N = torch.where(steps.terminated_N, ever, after_N)
            own = replace(batch, reward_NS=own_NS, value_NS=held["value_NS"], bootstrap_N=after_N)
            said[name] = self.advantage(own)
            said[f"{name}/target"] = said[name] + held["value_NS"]
        for_actor_NS = (said[CRITIC] - self.multiplier * said[EXCESS]) / (1 + self.multiplier)
        whitened = {
            f"{name}/advantage": Whitened()(replace(batch, advantage_NS=own_NS))
            for name, own_NS in ((ACTOR, for_actor_NS), (DISTURBER, said[EXCESS]))
        }
        before = models.in_micro_batches(batch, partial(_logprobs, models))
        targets = {name: target_NS for name, target_NS in said.items() if name.endswith("/target")}
        total, force = float(cost_NS.sum()), float(size_NS.sum())
        told = {
            "cost/mean": float(ops.masked_mean(cost_NS, mask_NS)),
            "push/mean": float(ops.masked_mean(size_NS, mask_NS)),
            "excess/mean": float(ops.masked_mean(excess_NS, mask_NS)),
            "gain": total / force if force > 0 else math.inf,
        }
        return batch.with_columns({**before, **targets, **whitened}), told

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        weight_NS, mask_NS = batch.facts["weight"], batch.mask_NS
        now, loss, told = _logprobs(models, batch), models.ranks.nothing(weight_NS), {}
        for name in (ACTOR, DISTURBER):
            own = replace(
                batch, proximal_NS=batch.facts[f"{name}/before"], advantage_NS=batch.facts[f"{name}/advantage"]
            )
            terms = self.objective(now[f"{name}/before"], own)
            loss = loss + ops.masked_sum(weight_NS * terms.loss_NS, mask_NS)
            for metric, value_NS in terms.metrics.items():
                told[f"{name}/{metric}"] = float(ops.masked_sum(weight_NS * value_NS, mask_NS))
        yield Loss(of=(POLICY,), value=loss, metrics={"loss": float(loss.detach()), **told})
        for name in (CRITIC, EXCESS):
            critic: AbstractCritic = models[name]
            assert batch.decisions is not None
            error_NS = (critic.value(batch.decisions)[0] - batch.facts[f"{name}/target"]).square() / 2
            value = ops.masked_sum(weight_NS * error_NS, mask_NS)
            yield Loss(of=(name,), value=value, metrics={f"{name}/loss": float(value.detach())})


def _logprobs(models: Models, batch: TrainBatch) -> Mapping[str, Float[Tensor, "N S"]]:
    """Log-probabilities of the two, each of its own half of every action."""
    steps, policy = batch.decisions, models.policy
    assert isinstance(steps, Steps) and isinstance(policy, DisturbedPolicy), type(policy)
    real, placed = real_of(steps)
    both = policy.each(real(steps.observation_NSO), real(steps.action_NSA), models.forward.temperature)
    return {f"{name}/before": placed(logprob_K) for name, (logprob_K, _) in zip((ACTOR, DISTURBER), both, strict=True)}
