"""FamO2O: implicit Q learning of a whole family of balances at once, and of a model that picks the balance by state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.implicit_q import AbstractImplicitQ
from gimbal.learning.updates.off_policy import TARGET, counted_of, means, steps_of
from gimbal.learning.updates.soft_actor_critic import TEMPERATURE, Temperature, of_temperature
from gimbal.policies.balanced import Balanced, BalancedPolicy
from gimbal.records import TrainBatch

# Facts: by which the family is taught, a balance picked, an action drawn at it.
FAMILY, PICKS, ACTS = "noise/family", "noise/picks", "noise/acts"
ENTROPY = -0.5  # of u, that the temperature holds


@dataclass(frozen=True, kw_only=True)
class ImplicitFamily(AbstractImplicitQ):
    """IQL whose policy is a family, one for each balance beta, and a balance model that picks beta by state (FamO2O,
    arXiv:2310.17966).

    For each minibatch of steps (o, a, r, o', ended), in this order, w being 1 / their number, A = min_m Q'_m(o, a) - V(o), and beta
    in [low, high] of the policy:

        value         sum w |expectile - [A < 0]| A^2,   the gradient only of V
        policy        - sum w min(exp(beta A), most) log pi(a|o, beta),   the gradient only of the family
                      + sum w (alpha log p(u|o) - min_m Q'_m(o, clip(a~, -b, b))),   the gradient only of the balance model, with u ~ p
                        and a~ = mean(o, beta(u)) + std e, e ~ N(0, 1), and through both
        temperature   - l sum w (log p(u|o) - 1/2),   alpha = exp(l)
        critic        sum w sum_m (Q_m(o, a) - y)^2,   y = r + gamma (1 - ended) V(o')

    ``uniform``: the family is taught at balances drawn evenly, as offline; else at those that the balance model draws, as online.
    ``balance/mean`` and ``balance/spread`` are the mean and the deviation over a minibatch of the balances that would be played.

    - ``policy.low`` = ``policy.high`` = beta: IQL with that beta (and a policy whose mean is bounded).
    - ``policy.high`` = 0: behavior cloning.

    Published: expectile .9 (mazes) and .7, most 100, all rates 3e-4, networks of 256 x 256, first ``uniform`` on recorded steps, then
    not, on those and its own.

    Confidence: verified; ours: one optimizer for family and balance model, a~ within the bound, and critics that a second run makes
    anew.
    """

    most: float = 100.0
    uniform: bool = True
    alpha: float = 1.0
    temperature_learning_rate: float = 3e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.most > 0 or not 0 < self.alpha < math.inf or not 0 <= self.temperature_learning_rate < math.inf:
            raise ValueError(
                f"ImplicitFamily has most {self.most} and alpha {self.alpha}, the first temperature, which are above 0, and "
                f"temperature_learning_rate {self.temperature_learning_rate}, which is 0 or above"
            )

    def models(self) -> dict[str, ModelSpec]:
        return {
            **super().models(),
            TEMPERATURE: ModelSpec(load=lambda seed: Temperature(self.alpha), optimizer=of_temperature(self)),
        }

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Balanced):
            yield Refusal(
                f"ImplicitFamily teaches a family of policies and which of them to play, and {type(whole.run.policy).__name__} is one "
                "policy: policy='Balanced(observations=..., actions=...)', or begin with iql"
            )

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        n, s = batch.shape
        draws = models.random(FAMILY)
        family_NS1 = 2 * draws.random((n, s, 1), np.float32) - 1 if self.uniform else draws.normal(size=(n, s, 1))
        found = {FAMILY: torch.from_numpy(family_NS1.astype(np.float32))}
        for name, size in ((PICKS, 1), (ACTS, _acting(models).actions)):
            found[name] = torch.from_numpy(models.random(name).standard_normal((n, s, size), dtype=np.float32))
        return found

    @torch.no_grad()
    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        minibatch, told = super().survey(models, minibatch)
        picked_K1 = _acting(models).picked(counted_of(minibatch)(steps_of(minibatch).observation_NSO))
        picks = {"balance/mean": float(picked_K1.mean()), "balance/spread": float(picked_K1.std(unbiased=False))}
        return minibatch, told | picks

    def imitation(self, models: Models, batch: TrainBatch, above_K: Float[Tensor, " K"]) -> Loss:
        policy, steps, counted = _acting(models), steps_of(batch), counted_of(batch)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        drawn_K1 = counted(batch.facts[FAMILY])
        with torch.no_grad():
            balance_K1 = policy.within(drawn_K1) if self.uniform else policy.sampled(seen_KO, drawn_K1)[0]
        counts_K = (balance_K1[:, 0] * above_K).exp().clamp(max=self.most)
        family_K = -counts_K * policy.density(seen_KO, balance_K1, counted(steps.action_NSA))

        tried_K1, logprob_K = policy.sampled(seen_KO, counted(batch.facts[PICKS]))
        mean_KA = policy.mode(seen_KO, tried_K1, frozen=True)
        action_KA = mean_KA + policy.deviation_A.detach() * counted(batch.facts[ACTS])
        worth_K = models[TARGET](policy.normal(seen_KO), action_KA.clamp(-policy.bound, policy.bound)).min(-1).values
        log_alpha = models[TEMPERATURE].log
        alpha = log_alpha.detach().exp()
        held = (weight_K * (logprob_K.detach() + ENTROPY)).sum()
        value = (weight_K * (family_K + alpha * logprob_K - worth_K)).sum() - log_alpha * held
        told = {"loss": family_K, "weight/mean": counts_K, "weight/clipped": (counts_K >= self.most).float()}
        told["alpha"] = alpha.expand_as(family_K)
        return Loss(of=(POLICY, TEMPERATURE), value=value, metrics=means(weight_K, told))


def _acting(models: Models) -> BalancedPolicy:
    policy = models.policy
    assert isinstance(policy, BalancedPolicy), type(policy)
    return policy
