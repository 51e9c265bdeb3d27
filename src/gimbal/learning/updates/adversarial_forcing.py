"""Adversarial post-training on the policy's own streams: a discriminator in place of a teacher and of a reward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.dataflow.real_samples import RealSamples
from gimbal.environments.conditions import Conditions
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.discriminator import DISCRIMINATOR, judged
from gimbal.learning.updates.distribution_matching import EPS, PLACE, REAL_SAMPLE, STEP, generated, noised
from gimbal.learning.updates.forward_process import Noised, acting, classes, paths, weighed_alike
from gimbal.policies.denoiser import Denoiser
from gimbal.records import TrainBatch

# Facts of another row of the batch, of another class: its label [N] and what it follows [N, 1, D]; whether there is one [N].
LABEL, GIVEN, CONTRASTED = "forcing/label", "forcing/given", "forcing/contrasted"


@dataclass(frozen=True, kw_only=True)
class AdversarialForcing(AbstractUpdate):
    """Learns to draw what passes for real under the same condition, on its own streams, by a discriminator alone (ARC-Forcing,
    arXiv:2605.22717; ARC: relativistic and contrastive adversarial post-training, arXiv:2505.08175).

    c is what a sample was drawn with: the class, if it was told, and the block before, as the policy drew it (or as ``workflow.past``
    gave it). x is the clean sample that the policy predicts at a random step of its own recorded path, x* one of ``real`` of the class
    of the episode, told or not; both are noised to one random time with one noise. D is the mean of the output of a network that begins
    as the policy did. For each minibatch, with c' the condition of a row of another class, at whichever block that is
    (so some first blocks, which are told their class, stand beside later ones, which are not):

        discriminator    softplus(D(x_t, c) - D(x*_t, c)) + contrast softplus(D(x*_t, c') - D(x*_t, c))
        policy           softplus(D(x*_t, c) - D(x_t, c))

    - D constant: no gradient for the policy.
    - ``contrast`` 0, or a batch of one class: a relativistic GAN, whose discriminator need not look at the condition.
    - workflow=SingleTurn(): ARC on single samples.

    Only the step that predicts x carries gradient; the path before it, and the blocks before, are as they were drawn. A real sample
    that follows the policy's own block does not exist: one of its class stands for it, so that D learns which class goes on.
    ``optimization.critic_learning_rate`` is the rate of D. Left out: a cache over blocks, and a discriminator that sees several blocks.

    Confidence: abstract only; the equations are those of ARC as we read it.
    """

    real: RealSamples = field(default_factory=RealSamples)
    contrast: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.contrast < math.inf:
            raise ValueError(
                f"AdversarialForcing.contrast is {self.contrast}; it must be 0 (a relativistic GAN) or above, and finite"
            )

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        return {
            DISCRIMINATOR: ModelSpec(first=True, optimizer=rates.adamw(rates.critic_learning_rate)),
            POLICY: ModelSpec(optimizer=rates.of_policy()),
        }

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        tasks = whole.run.tasks
        if not isinstance(whole.run.policy, Denoiser):
            yield Refusal("AdversarialForcing noises samples for a network that denoises: policy='Denoiser()'")
        elif self.contrast and isinstance(tasks, Conditions) and len(set(tasks.labels)) < 2:
            yield Refusal(
                f"update.contrast is {self.contrast:g}, which compares the conditions of two classes, and tasks.labels has "
                f"{len(set(tasks.labels))}: set update.contrast=0, or two or more labels"
            )

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """With steps, times, noises, real samples and other conditions for all of it, so that they do not depend on how it is split."""
        decisions, generator = paths(batch), models.random("adversarial forcing")
        n, shape = len(decisions.length_N), tuple(decisions.state_NXD.shape[2:])
        class_N = classes(batch, self).cpu()
        apart_NN = class_N[:, None] != class_N
        order_NN = torch.from_numpy(generator.random((n, n))).where(apart_NN, -1.0)
        other_N = order_NN.argmax(1)
        facts = {
            STEP: torch.from_numpy(generator.integers(decisions.length_N.cpu().numpy())),
            PLACE.format(0): torch.from_numpy(generator.random(n, dtype="float32")),
            EPS.format(0): torch.from_numpy(generator.standard_normal((n, 1, *shape), dtype="float32")),
            REAL_SAMPLE.format(0): self.real.drawn(class_N, shape, generator)[:, None],
            LABEL: decisions.label_N.cpu()[other_N],
            CONTRASTED: apart_NN.any(1),
        }
        if decisions.given_ND is not None:
            facts[GIVEN] = decisions.given_ND.cpu()[other_N][:, None]
        return batch.with_columns(facts).to(models.device), {}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        return weighed_alike(minibatch), {}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy, weight_N = acting(models), batch.facts["weight"]
        real = noised(policy, batch, batch.facts[REAL_SAMPLE.format(0)][:, 0], 0)
        sample_ND = generated(policy, batch)
        real_N = judged(models[DISCRIMINATOR], real)
        drawn_N = judged(models[DISCRIMINATOR], noised(policy, batch, sample_ND.detach(), 0))
        loss_N, told = softplus(drawn_N - real_N), {"apart": real_N - drawn_N}
        if self.contrast:
            there_N: Bool[Tensor, " N"] = batch.facts[CONTRASTED]
            told["read"] = (real_N - judged(models[DISCRIMINATOR], elsewhere(batch, real))) * there_N
            loss_N = loss_N + self.contrast * softplus(-told["read"]) * there_N
        value = (weight_N * loss_N).sum()
        figures = {name: float((weight_N * x_N.detach()).sum()) for name, x_N in told.items()}
        figures = {f"{DISCRIMINATOR}/{name}": x for name, x in figures.items()} | {
            f"{DISCRIMINATOR}/loss": float(value.detach())
        }
        yield Loss(of=(DISCRIMINATOR,), value=value, metrics=figures)
        # Asked anew: the discriminator has moved.
        with torch.no_grad():
            real_N = judged(models[DISCRIMINATOR], real)
        against_N = softplus(real_N - judged(models[DISCRIMINATOR], noised(policy, batch, sample_ND, 0)))
        value = (weight_N * against_N).sum()
        yield Loss(of=(POLICY,), value=value, metrics={"loss": float(value.detach())})


def elsewhere(batch: TrainBatch, rows: Noised) -> Noised:
    """The same samples under the conditions of other rows."""
    given_ND: Float[Tensor, "N ..."] | None = batch.facts[GIVEN][:, 0] if GIVEN in batch.facts else None
    return replace(rows, label_J=batch.facts[LABEL], given_JD=given_ND)
