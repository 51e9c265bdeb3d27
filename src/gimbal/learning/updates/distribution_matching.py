"""Distillation into few steps: a policy learns from two scores of its noised samples, its teacher's and its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from gimbal import ops
from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.discriminator import DISCRIMINATOR, AdversarialLoss, judged
from gimbal.learning.updates.forward_process import Noised, acting, paths, weighed_alike
from gimbal.learning.updates.reward_weighted import ELEMENT, ROLLOUT, RewardWeighted
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy, alike
from gimbal.policies.samplers import wide
from gimbal.records import TrainBatch
from gimbal.rewards.base import AbstractReward

FAKE, REAL = "fake", "real"
# Facts: [N]; of each draw [N], [N, 1, D] and [N, 1, D].
STEP, PLACE, EPS, REAL_SAMPLE = "matching/step", "matching/place/{}", "matching/eps/{}", "matching/real_sample/{}"
EARLIEST, LATEST = 0.02, 0.98  # places at which scores are compared


@dataclass(frozen=True, kw_only=True)
class DistributionMatching(AbstractUpdate):
    """Makes a sampler of few steps draw what its teacher draws in many, by scores of noised samples (DMD2, arXiv:2405.14867).

    x is the clean sample that the policy predicts at a random step of its own recorded path, x_t the same noised to a random time; x0_f
    and x0_r are the clean samples that ``fake`` and ``real``, the teacher, predict of x_t. For each minibatch:

        fake          md |v_f - v*|^2 on sg x, ``fake_updates`` times, each with its own times and noises
        policy        1/2 md |x - sg(x - g)|^2,   g = (x0_f - x0_r) / md |x - x0_r|,   times from 0.02 to 0.98

    (v_f is what ``fake`` says of x_t, v* what it should say; md the mean over a sample's numbers; sg: without gradient.)
    x0_f - x0_r is the difference of the scores of x_t, times noise^2 / signal, so the policy descends the KL of its noised samples to
    the teacher's, with a positive weight for each sample. Only the step that predicts x carries gradient: the steps before it are the
    path as it was sampled, which is the paper's backward simulation.

    - fake = real: no gradient.
    - Gaussian samples and teacher, without the denominator: the gradient of the KL of the noised samples, times (noise / signal)^2.
    - paths of one step: a generator, x = x0 hat of noise.

    ``by_group`` (GNDM, arXiv:2603.28460, which reads g as the gradient of a reward, log p_real - log p_fake, and normalises it as GRPO
    does): the samples of a task get one time, and one denominator, the mean of theirs. A sample that is far from what the teacher makes
    of it then moves further than its group, where its own denominator makes all of them move alike.

    - groups of one, or equal denominators: the same as without.

    ``teacher`` None is the policy as the run began, which ``fake`` begins as too. Published: 5 fake updates for one of the policy, one
    rate for both, a teacher with guidance, paths of one or four steps that are noised anew after each (sampling.sampler=cps
    sampling.noise=1). Ours: the fake updates of a minibatch share its samples. ``adversarial`` adds the GAN loss on real samples;
    ``weighted`` weighs what the policy learns by the run's reward.
    ``optimization.critic_learning_rate`` is the rate of fake and discriminator.

    Confidence: verified.
    """

    teacher: Denoiser | None = None
    fake_updates: int = 5
    by_group: bool = False
    adversarial: AdversarialLoss | None = None
    weighted: RewardWeighted | None = None
    rewards: tuple[AbstractReward, ...] = ()

    def __post_init__(self) -> None:
        if self.fake_updates < 1:
            raise ValueError(
                f"DistributionMatching.fake_updates is {self.fake_updates}; it must be at least 1, or fake does not follow the policy"
            )

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        beside = ModelSpec(first=True, optimizer=rates.adamw(rates.critic_learning_rate))
        return ({} if self.adversarial is None else {DISCRIMINATOR: beside}) | {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            FAKE: beside,
            REAL: ModelSpec(first=True) if self.teacher is None else ModelSpec(load=self.teacher.load),
        }

    def of_run(self, rewards: tuple[AbstractReward, ...]) -> DistributionMatching:
        return replace(self, rewards=rewards)

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def whole_groups(self) -> bool:
        return self.by_group

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        policy = whole.run.policy
        if not isinstance(policy, Denoiser):
            yield Refusal("DistributionMatching noises samples for networks that denoise: policy='Denoiser()'")
        elif policy.guidance != 1:
            yield Refusal(
                f"policy.guidance is {policy.guidance}, and DistributionMatching fits fake to samples, which guidance does not: give "
                f"it to the teacher, update.teacher='Denoiser(guidance={policy.guidance:g})' policy.guidance=1"
            )
        if self.rewards:
            yield Refusal("update.rewards are the run's: leave them out, and set reward=")

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """With steps, times and noises sampled for all of it, so that they do not depend on how it is split."""
        alike(acting(models), models[REAL])
        decisions, generator = paths(batch), models.random("distribution matching")
        n, shape = len(decisions.length_N), tuple(decisions.state_NXD.shape[2:])
        facts = {STEP: torch.from_numpy(generator.integers(decisions.length_N.cpu().numpy()))}
        for draw in range(self.fake_updates + 1):
            last = draw == self.fake_updates
            of_N = torch.arange(n)
            if last and self.by_group:
                of_N = batch.column("group_N", self).cpu().unique(return_inverse=True)[1]
            place_N = torch.from_numpy(generator.random(int(of_N.max()) + 1, dtype="float32"))[of_N]
            facts[PLACE.format(draw)] = EARLIEST + (LATEST - EARLIEST) * place_N if last else place_N
            facts[EPS.format(draw)] = torch.from_numpy(generator.standard_normal((n, 1, *shape), dtype="float32"))
            if self.adversarial is not None and self.adversarial.real is not None and not last:
                real_ND = self.adversarial.real.drawn(decisions.label_N.cpu(), shape, generator)
                facts[REAL_SAMPLE.format(draw)] = real_ND[:, None]
        if self.weighted is not None and self.weighted.saliency:
            facts[ELEMENT] = self.weighted.of_elements(batch, self.rewards)
        return batch.with_columns(facts).to(models.device), {}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        minibatch = weighed_alike(minibatch)
        if self.weighted is None:
            return minibatch, {}
        rollout_N = self.weighted.of_rollouts(minibatch)
        told = {"matching/rollouts": float(rollout_N.sum() ** 2 / rollout_N.square().sum())}
        return minibatch.with_columns({ROLLOUT: rollout_N}), told

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy, weight_N = acting(models), batch.facts["weight"]
        with torch.no_grad():
            sample_ND = generated(policy, batch)
            next_ND = generated(policy, batch, later=1) if self.by_itself else None
        for draw in range(self.fake_updates):
            rows = noised(policy, batch, sample_ND, draw)
            value = (weight_N * rows.missed(rows.said(models[FAKE]))[:, 0]).sum()
            yield Loss(of=(FAKE,), value=value, metrics={"fake/loss": float(value.detach())})
            if self.adversarial is not None:
                real_ND = batch.facts[REAL_SAMPLE.format(draw)][:, 0] if next_ND is None else next_ND
                yield self.discriminated(models, batch, rows, real_ND, draw)
        sample_ND = generated(policy, batch)
        rows = noised(policy, batch, sample_ND.detach(), self.fake_updates)
        with torch.no_grad():
            apart_ND, off_N = difference(rows, models[FAKE], models[REAL])
            off_N = ops.group_mean(off_N, batch.column("group_N", self)) if self.by_group else off_N
            target_ND = sample_ND - apart_ND / wide(off_N.clamp(min=1e-5), apart_ND)
        loss_ND = 0.5 * (sample_ND - target_ND).square()
        told = {"matching/apart": apart_ND.abs().flatten(1).mean(-1), "matching/off": off_N}
        if ELEMENT in batch.facts:
            loss_ND = loss_ND * batch.facts[ELEMENT][:, 0]
            told["matching/salient"] = batch.facts[ELEMENT].flatten(1).amax(-1)
        loss_N = loss_ND.flatten(1).mean(-1)
        if ROLLOUT in batch.facts:
            loss_N = loss_N * batch.facts[ROLLOUT]
        if self.adversarial is not None:
            passed_N = softplus(-judged(models[DISCRIMINATOR], noised(policy, batch, sample_ND, self.fake_updates)))
            passed_N = passed_N * self.compared(batch)
            loss_N = loss_N + self.adversarial.coef * passed_N
            told |= {"discriminator/against": passed_N.detach()}
        value = (weight_N * loss_N).sum()
        figures = {name: float((weight_N * x_N).sum()) for name, x_N in told.items()}
        yield Loss(of=(POLICY,), value=value, metrics={"loss": float(value.detach()), **figures})

    @property
    def by_itself(self) -> bool:
        """Whether the policy's own next step stands for real samples."""
        return self.adversarial is not None and self.adversarial.real is None

    def compared(self, batch: TrainBatch) -> Float[Tensor, " N"]:
        """1 for each row that the discriminator sees: all but those at the last step of their path, where its next stands for real."""
        step_N = batch.facts[STEP]
        return (step_N + 1 < paths(batch).length_N).float() if self.by_itself else torch.ones_like(step_N).float()

    def discriminated(
        self, models: Models, batch: TrainBatch, rows: Noised, real_ND: Float[Tensor, "N ..."], draw: int
    ) -> Loss:
        """What the discriminator learns: real samples at the times and with the noises of the policy's."""
        weight_N = batch.facts["weight"] * self.compared(batch)
        real_N = judged(models[DISCRIMINATOR], noised(acting(models), batch, real_ND, draw))
        drawn_N = judged(models[DISCRIMINATOR], rows)
        value = (weight_N * (softplus(-real_N) + softplus(drawn_N))).sum()
        told = {"loss": float(value.detach()), "apart": float((weight_N * (real_N - drawn_N).detach()).sum())}
        return Loss(
            of=(DISCRIMINATOR,), value=value, metrics={f"{DISCRIMINATOR}/{name}": x for name, x in told.items()}
        )


def generated(policy: DenoiserPolicy, batch: TrainBatch, later: int = 0) -> Float[Tensor, "N ..."]:
    """The clean sample that the policy predicts at the drawn step of each path, or some steps later, at most at the last."""
    decisions = paths(batch)
    step_N = (batch.facts[STEP] + later).minimum(decisions.length_N - 1)
    at = (torch.arange(len(step_N), device=step_N.device), step_N)
    x_ND = decisions.state_NXD[at]
    found_ND = policy.found(x_ND, decisions.time_NS[at], decisions.label_N, decisions.given_ND)
    return policy.process.split(x_ND, found_ND, decisions.level_NSL[at])[0]


def noised(policy: DenoiserPolicy, batch: TrainBatch, sample_ND: Float[Tensor, "N ..."], draw: int) -> Noised:
    """Samples with the times and noises of this draw."""
    place_N, eps_ND = batch.facts[PLACE.format(draw)], batch.facts[EPS.format(draw)][:, 0]
    return Noised.of(policy, sample_ND, eps_ND, place_N, paths(batch))


def difference(
    rows: Noised, fake: DenoiserPolicy, real: DenoiserPolicy
) -> tuple[Float[Tensor, "N ..."], Float[Tensor, " N"]]:
    """(x0_f - x0_r, md |x - x0_r|) of each noised sample."""
    fake_ND, real_ND = (one.process.split(rows.state_JD, rows.said(one), rows.level_JL)[0] for one in (fake, real))
    return fake_ND - real_ND, (rows.clean_JD - real_ND).abs().flatten(1).mean(-1)
