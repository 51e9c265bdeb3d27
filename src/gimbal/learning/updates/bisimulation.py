"""A code of histories that keeps apart what earns or leads to different things, and nothing else (a bisimulation)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import ENCODES, Composition, Refusal, Verdict
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.learning.updates.around import AbstractAround
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.implicit_q import ImplicitQ
from gimbal.learning.updates.off_policy import CRITIC, counted_of, means, steps_of, summed
from gimbal.ops import stable_hash
from gimbal.policies.control import AbstractControlPolicy, output_of, relu_mlp
from gimbal.policies.encoded import Encoded
from gimbal.records import TrainBatch

LATENT = "latent"
PAIR = "bisimulation/pair"  # fact [N, S, O]: what was observed in the row that this one is compared with
LEAST_LOG_STD, MOST_LOG_STD = -4.0, 1.0
NEAR = 1e-8  # within the root of a distance, whose slope at 0 is else infinite


class LatentModel(nn.Module):
    """What an action makes of a code: z' ~ N(mean(z, a), std(z, a)^2) in each dimension, and the expected reward."""

    def __init__(self, code: int, actions: int, hidden: tuple[int, ...], bound: float, seed: int) -> None:
        super().__init__()
        self.code, self.bound = code, bound
        self.net = relu_mlp([code + actions, *hidden, 2 * code + 1], seed)

    def forward(
        self, code_KZ: Float[Tensor, "K Z"], action_KA: Float[Tensor, "K A"]
    ) -> tuple[Float[Tensor, "K Z"], Float[Tensor, "K Z"], Float[Tensor, " K"]]:
        """Mean and log of the deviation of z', and the reward."""
        out_KY = output_of(self.net, torch.cat([code_KZ, action_KA / self.bound], -1))
        change_KZ, log_std_KZ, reward_K1 = out_KY.split([self.code, self.code, 1], -1)
        return code_KZ + change_KZ, log_std_KZ.clamp(LEAST_LOG_STD, MOST_LOG_STD), reward_K1[:, 0]

    def surprise(
        self,
        code_KZ: Float[Tensor, "K Z"],
        action_KA: Float[Tensor, "K A"],
        next_KZ: Float[Tensor, "K Z"],
        reward_K: Float[Tensor, " K"],
    ) -> Float[Tensor, " K"]:
        """- log p(z'|z, a) per dimension, up to a constant, and the square of the reward's error."""
        mean_KZ, log_std_KZ, said_K = self(code_KZ, action_KA)
        nll_KZ = 0.5 * ((next_KZ - mean_KZ) * (-log_std_KZ).exp()).square() + log_std_KZ
        return nll_KZ.mean(-1) + (said_K - reward_K).square()

    @torch.no_grad()
    def apart(
        self,
        one_KZ: Float[Tensor, "K Z"],
        other_KZ: Float[Tensor, "K Z"],
        action_KA: Float[Tensor, "K A"],
        gamma: float,
    ) -> Float[Tensor, " K"]:
        """D: how far rewards and next codes of the same action lie apart, the latter by the 2-Wasserstein distance."""
        (mean_KZ, log_KZ, reward_K), (mean2_KZ, log2_KZ, reward2_K) = self(one_KZ, action_KA), self(other_KZ, action_KA)
        moved_KZ, spread_KZ = mean_KZ - mean2_KZ, log_KZ.exp() - log2_KZ.exp()
        return (reward_K - reward2_K).abs() + gamma * (moved_KZ.square() + spread_KZ.square()).sum(-1).sqrt()


@dataclass(frozen=True, kw_only=True)
class HistoryBisimulation(AbstractAround):
    """IQL on a code of the observation, a history say, in which distances are those of what follows ("Offline RL with Observation
    Histories", arXiv:2310.20663).

    The policy (``Encoded``) has an encoder z = phi(o); Q, V and the policy read z, and phi learns by the critic's loss. With P(.|z, a)
    = N(mean, std^2) and r(z, a) a model of z' and reward (``latent``), for each minibatch, w being 1 / the number of steps, o2 the
    observation of another row of the minibatch, z2 its code, and D without gradient:

        value, policy   as in ``inside``, on z without gradient
        latent          sum w (mean_Z (- log P(z'|z, a)) + (r(z, a) - r)^2),   no gradient into z and z'
        critic          inside's + ``weight`` sum w (|z - z2| - D)^2,   into Q and phi,
                        D = |r(z, a) - r(z2, a)| + gamma W_2(P(.|z, a), P(.|z2, a))

    Both are asked for the same action, so that what a history tells only of who acted does not count. Without it no two histories are
    alike, and values of one say nothing of another; with it those coincide that earn and lead to the same.

    - ``weight`` = 0: ``inside`` on a code that the critic alone teaches.
    - the same observation in every row: |z - z2| = D = 0, and only Q teaches.
    - rewards of 0 everywhere: codes shrink towards one point; ``code/spread`` (the mean deviation of z) shows it.

    Published: with IQL and CQL. Ours: the pairing of rows, L2 distances, the model that predicts rewards, all sizes and ``weight``. No
    target network for phi.

    Confidence: partial (the abstract and the standard form of such losses).
    """

    inside: ImplicitQ
    code: int = 8
    weight: float = 0.1
    hidden: tuple[int, ...] = (64,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.code < 1 or not 0 <= self.weight < math.inf:
            raise ValueError(
                f"HistoryBisimulation has code {self.code}, which counts the numbers of a code from 1, and weight {self.weight}, 0 or "
                "above"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({ENCODES})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        policy = whole.run.policy
        if not isinstance(policy, Encoded):
            yield Refusal(
                f"HistoryBisimulation shapes the code that a policy acts on, and {type(policy).__name__} has none: "
                "policy='Encoded(observations=..., actions=...)', or begin with iql"
            )
        elif policy.code != self.code:
            yield Refusal(
                f"policy.code is {policy.code} and update.code {self.code}, which critics read: set both to the same number"
            )
        if not isinstance(whole.run.store, Recordings):
            yield Refusal(
                "HistoryBisimulation compares recorded single steps that are drawn by chance, which only store='Recordings()' draws"
            )

    def models(self) -> dict[str, ModelSpec]:
        """Those of ``inside``, whose critics read codes, and the model of codes."""
        critic, rates = self.inside.critic, self.optimization
        coded = replace(self.inside, critic=replace(critic, observations=self.code))
        return {
            **coded.models(),
            LATENT: ModelSpec(load=self.latent, optimizer=rates.adamw(rates.critic_learning_rate)),
        }

    def latent(self, seed: int) -> LatentModel:
        critic = self.inside.critic
        return LatentModel(self.code, critic.actions, self.hidden, critic.bound, stable_hash(LATENT, seed) % 2**63)

    @torch.no_grad()
    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """Each row's partner is the one before it: stores draw rows by chance, and micro-batches must not change the pairs."""
        minibatch, told = self.inside.survey(models, minibatch)
        policy, seen_NSO = models.policy, steps_of(minibatch).observation_NSO
        assert isinstance(policy, AbstractControlPolicy)
        code_KZ = policy.normal(counted_of(minibatch)(seen_NSO))
        told |= {"code/spread": float(code_KZ.std(0, unbiased=False).mean())}
        return minibatch.with_columns({PAIR: seen_NSO.roll(1, 0)}), told

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        for loss in self.inside.losses(models, batch):
            if loss.of != (CRITIC,):
                yield loss
                continue
            value, told = loss.value, dict(loss.metrics)
            if self.weight:
                yield self._modelled(models, batch)
                apart, more = self._apart(models, batch)
                value, told = value + self.weight * apart, told | more
            yield Loss(of=(CRITIC, POLICY), value=value, metrics=told)

    def _modelled(self, models: Models, batch: TrainBatch) -> Loss:
        policy, steps, counted = models.policy, steps_of(batch), counted_of(batch)
        assert isinstance(policy, AbstractControlPolicy)
        with torch.no_grad():
            code_KZ, next_KZ = (policy.normal(counted(x)) for x in (steps.observation_NSO, steps.next_NSO))
        reward_K = counted(batch.column("reward_NS", self))
        surprise_K = models[LATENT].surprise(code_KZ, counted(steps.action_NSA), next_KZ, reward_K)
        weight_K = counted(batch.facts["weight"])
        return Loss(
            of=(LATENT,), value=summed(weight_K, surprise_K), metrics=means(weight_K, {"latent/loss": surprise_K})
        )

    def _apart(self, models: Models, batch: TrainBatch) -> tuple[Float[Tensor, ""], Metrics]:
        """The loss of distances, and what is told of it."""
        policy, steps, counted = models.policy, steps_of(batch), counted_of(batch)
        assert isinstance(policy, AbstractControlPolicy)
        one_KZ, other_KZ = (policy.normal(counted(x)) for x in (steps.observation_NSO, batch.facts[PAIR]))
        wanted_K = models[LATENT].apart(one_KZ, other_KZ, counted(steps.action_NSA), self.inside.gamma)
        distance_K = ((one_KZ - other_KZ).square().sum(-1) + NEAR).sqrt()
        error_K, weight_K = (distance_K - wanted_K).square(), counted(batch.facts["weight"])
        told = {"bisimulation/loss": error_K, "bisimulation/distance": distance_K, "bisimulation/wanted": wanted_K}
        return summed(weight_K, error_K), means(weight_K, told)
