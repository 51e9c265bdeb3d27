"""Matching on own samples, weighed by a critic of noisy states: what a sample earned beyond what could be foreseen at that noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.discriminator import judged
from gimbal.learning.updates.forward_process import (
    PLACE,
    REFERENCE,
    SIZE,
    AbstractForwardProcess,
    Noised,
    acting,
    noised,
)
from gimbal.records import TrainBatch

CRITIC = "critic"
WEIGHT = "critic/weight"  # fact: [N, K]


@dataclass(frozen=True, kw_only=True)
class CriticWeightedMatching(AbstractForwardProcess):
    """Matching on the policy's samples, where a state counts by what its sample earned above a critic's forecast (AC-Flow,
    arXiv:2510.18072).

    R~ is ``advantage``: the scores, shaped to mean 0 and deviation 1 and cut. The critic V(x_t, t, c) is the mean of the output of a
    network that begins as the policy did. For each sample and each of ``draws`` noises:

        critic    (V(x_t, t, c) - R~)^2
        policy    w md |v - v*|^2 + coef md |v - v_ref|^2,   w = exp(A / tau),   A = clip(R~ - V(x_t, t, c), -most, most)

    (v is what the network says of a noised sample x_t, v* what it should say; md the mean over a sample's numbers.)
    Where V foresees R~, near the sample, A vanishes: credit goes to the noises at which the outcome is open. w is by the critic before
    it moves. In the first ``warm_up`` learner steps w = exp(R~ / tau), so that a critic that knows nothing decides nothing. The second
    term bounds how far the distribution of samples moves (in Wasserstein-2 distance).

    - V = 0, and no R~ beyond ``most``: ORW-CFM-W2 (arXiv:2502.06061), w = exp(R~ / tau).
    - ``most`` to 0, or ``tau`` to infinity: w = 1, matching on own samples.

    Published: critic, shaped rewards, clips and warm-up, weights of any rising function; the numbers are ours, as are the batch's mean
    and deviation in place of running ones. Left out: the critic's own design.

    Confidence: abstract only.
    """

    advantage: AbstractAdvantage = field(default_factory=lambda: BatchScaled(limit=3.0))
    tau: float = 1.0
    most: float = 2.0
    coef: float = 0.1
    warm_up: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tau > 0 or not self.most > 0:
            raise ValueError(
                f"CriticWeightedMatching.tau is {self.tau} and most {self.most}; both must be above 0, or nothing is weighed"
            )
        if not 0 <= self.coef < float("inf") or self.warm_up < 0:
            raise ValueError(
                f"CriticWeightedMatching.coef is {self.coef} and warm_up {self.warm_up}; both must be 0 or above, and coef finite"
            )

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        own = {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            CRITIC: ModelSpec(first=True, optimizer=rates.adamw(rates.critic_learning_rate)),
        }
        return own | ({REFERENCE: ModelSpec(first=True)} if self.coef else {})

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """``critic/weight``: w of each sample and draw."""
        minibatch, _ = super().survey(models, minibatch)
        earned_NK = minibatch.facts[SIZE][:, None].expand(minibatch.facts[PLACE].shape)
        weight_N1 = minibatch.facts["weight"][:, None]
        value_NK = self.of_all(models, minibatch, lambda rows: rows.per_sample(judged(models[CRITIC], rows)))
        left_NK = earned_NK - value_NK
        taken_NK = earned_NK if models.version < self.warm_up else left_NK.clamp(-self.most, self.most)
        late_NK = minibatch.facts[PLACE] < 0.5

        def mean(x_NK: Tensor, of_NK: Tensor) -> float:
            return float((weight_N1 * x_NK * of_NK).sum() / (weight_N1 * of_NK).sum().clamp(min=1e-12))

        told = {
            "critic/left_noisy": mean(left_NK.abs(), ~late_NK),
            "critic/left_clean": mean(left_NK.abs(), late_NK),
            "critic/warm": float(models.version >= self.warm_up),
        }
        return minibatch.with_columns({WEIGHT: (taken_NK / self.tau).exp()}), told

    def matched(
        self, models: Models, batch: TrainBatch, noised: Noised
    ) -> tuple[Float[Tensor, "N K"], dict[str, Tensor]]:
        now_JD, weight_NK = noised.said(acting(models)), batch.facts[WEIGHT]
        loss_NK, told = weight_NK * noised.missed(now_JD), {"critic/weight": weight_NK}
        if not self.coef:
            return loss_NK, told
        with torch.no_grad():
            first_JD = noised.said(models[REFERENCE])
        pull_NK = noised.per_sample((now_JD - first_JD).square().flatten(1).mean(-1))
        return loss_NK + self.coef * pull_NK, told | {"kl/velocity": pull_NK}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        rows = noised(models, batch)
        missed_NK = (rows.per_sample(judged(models[CRITIC], rows)) - batch.facts[SIZE][:, None]).square()
        value = (batch.facts["weight"] * missed_NK.mean(-1)).sum()
        yield Loss(of=(CRITIC,), value=value, metrics={"critic/loss": float(value.detach())})
        yield from super().losses(models, batch)
