"""Distillation of a black box: a discriminator scores the policy's samples, and its scores weigh their matching losses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.dataflow.real_samples import RealSamples
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.discriminator import DISCRIMINATOR, judged
from gimbal.learning.updates.forward_process import (
    REFERENCE,
    Noised,
    acting,
    noised,
    paths,
    placed,
    weighed_alike,
)
from gimbal.policies.denoiser import Denoiser, single_blocks
from gimbal.records import TrainBatch

REAL_SAMPLE, GOOD = "adversarial/real_sample", "adversarial/good"  # facts: [N, 1, D], [N]
MOST = 5.0  # of a score from the mean


@dataclass(frozen=True, kw_only=True)
class AdversarialFlow(AbstractUpdate):
    """Learns from a teacher of which only finished samples are known, by a discriminator between these and the policy's own
    (AFD, arXiv:2605.26105).

    x is the policy's sample, x* one of ``real`` for the same condition, D(x, c) the mean of the output, at the end of the path, of a
    network that begins as the policy did. For each minibatch, with x_t the sample noised at ``draws`` random times, v* its target:

        w               D(x) less its mean, cut at +-5, mapped from least and most of the minibatch to 0 and 1; 1/2 where all are equal
        discriminator   - log sigmoid(D(x*) - D(x))
        policy          w md |v+ - v*|^2 + (1 - w) md |v- - v*|^2 + coef w md |v - v_ref|^2,   v+ and v- = sg v +- b (v - sg v)

    (v is what the network says of x_t; md the mean over a sample's numbers; sg: without gradient.)
    w is of the discriminator as it was before it moves. The contrast is that of ``DiffusionNFT`` whose old policy is the present one.

    - coef = 0: the gradient of b (2 w - 1) md |v - v*|^2, so matching with the signed weight 2 w - 1.
    - D constant: w = 1/2, and no gradient but that of the pull to the base.
    - w = 1: matching on the policy's own samples.
    - b scales the gradient against the pull alone: without a pull Adam does not see it.

    Published: b 0.1, a rate of 5e-6 to 1e-5 for the discriminator of a large model, which must be balanced as in a GAN. Here it is
    ``optimization.critic_learning_rate``. No reward is read, and samples of any age will do.

    Confidence: partial; b and the map to w are those of a re-implementation.
    """

    real: RealSamples = field(default_factory=RealSamples)
    b: float = 0.1
    coef: float = 0.0
    draws: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.b <= 1 or not 0 <= self.coef < math.inf:
            raise ValueError(
                f"AdversarialFlow.b is {self.b} and coef {self.coef}; b is above 0 and at most 1, coef 0 (no pull to the base) or above"
            )
        if self.draws < 1:
            raise ValueError(f"AdversarialFlow.draws is {self.draws}; it must be at least 1")

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        own = {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            DISCRIMINATOR: ModelSpec(first=True, optimizer=rates.adamw(rates.critic_learning_rate)),
        }
        return own | ({REFERENCE: ModelSpec(first=True)} if self.coef else {})

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not isinstance(whole.run.policy, Denoiser):
            yield Refusal("AdversarialFlow noises samples for a network that denoises: policy='Denoiser()'")
        yield from single_blocks("AdversarialFlow", whole)

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """With times, noises and real samples for all of it, so that they do not depend on how it is split."""
        decisions = paths(batch)
        shape = tuple(decisions.state_NXD.shape[2:])
        facts = placed(models, torch.arange(len(decisions.length_N)), self.draws, shape)
        real_ND = self.real.drawn(decisions.label_N.cpu(), shape, models.random("real samples"))
        return batch.with_columns(facts | {REAL_SAMPLE: real_ND[:, None]}).to(models.device), {}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """``adversarial/good``: w of each sample."""
        minibatch = weighed_alike(minibatch)

        def scored(micro: TrainBatch) -> dict[str, Tensor]:
            score_N1 = self.score(models, micro, paths(micro).sample_ND)[:, None]
            return {"found": score_N1.expand(micro.shape)}

        score_N = models.in_micro_batches(minibatch, scored)["found"][:, 0]
        good_N = between(score_N, minibatch.facts["weight"])
        return minibatch.with_columns({GOOD: good_N}), {}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        weight_N = batch.facts["weight"]
        apart_N = self.score(models, batch, batch.facts[REAL_SAMPLE][:, 0]) - self.score(
            models, batch, paths(batch).sample_ND
        )
        value = -(weight_N * logsigmoid(apart_N)).sum()
        told = {"loss": float(value.detach()), "apart": float((weight_N * apart_N.detach()).sum())}
        yield Loss(of=(DISCRIMINATOR,), value=value, metrics={f"{DISCRIMINATOR}/{name}": x for name, x in told.items()})
        rows, good_N = noised(models, batch), batch.facts[GOOD]
        now_JD = rows.said(acting(models))
        held_JD = now_JD.detach()
        up_NK, down_NK = (rows.missed(held_JD + side * self.b * (now_JD - held_JD)) for side in (1, -1))
        loss_NK = good_N[:, None] * up_NK + (1 - good_N[:, None]) * down_NK
        figures = {"adversarial/good": float((weight_N * good_N).sum())}
        if self.coef:
            with torch.no_grad():
                first_JD = rows.said(models[REFERENCE])
            pull_NK = rows.per_sample((now_JD - first_JD).square().flatten(1).mean(-1))
            loss_NK = loss_NK + self.coef * good_N[:, None] * pull_NK
            figures["kl/velocity"] = float((weight_N * pull_NK.detach().mean(-1)).sum())
        value = (weight_N * loss_NK.mean(-1)).sum()
        yield Loss(of=(POLICY,), value=value, metrics={"loss": float(value.detach()), **figures})

    def score(self, models: Models, batch: TrainBatch, sample_ND: Float[Tensor, "N ..."]) -> Float[Tensor, " N"]:
        """D of clean samples, asked for as those of the batch were."""
        still_ND, place_N = torch.zeros_like(sample_ND), sample_ND.new_zeros(len(sample_ND))
        rows = Noised.of(acting(models), sample_ND, still_ND, place_N, paths(batch))
        return judged(models[DISCRIMINATOR], rows)


def between(score_N: Float[Tensor, " N"], weight_N: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """w of each score among those that count: from 0 for the least to 1 for the most; 1/2 where all are equal."""
    cut_N = (score_N - (weight_N * score_N).sum()).clamp(-MOST, MOST)
    there_N = cut_N[weight_N > 0]
    if not len(there_N) or not float(spread := there_N.max() - there_N.min()):
        return torch.full_like(score_N, 0.5)
    return ((cut_N - there_N.min()) / spread).clamp(0, 1)
