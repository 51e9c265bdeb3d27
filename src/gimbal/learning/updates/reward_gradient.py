"""Reward backpropagation: the gradient of a differentiable reward, through the sampler, into the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gimbal.composition import FORWARD, STREAMS, Composition, Refusal, Verdict
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.forward_process import REFERENCE, acting, paths, weighed_alike
from gimbal.learning.updates.gradient_steps import AbstractGradientSteps, GradientSteps
from gimbal.policies import samplers
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy, single_blocks
from gimbal.policies.paths import ODE, Paths, PathSampling
from gimbal.records import TrainBatch
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.pair_judge import AbstractPairJudge, AskedSamples
from gimbal.rewards.samples import AbstractSampleReward

NOISE, PLACE = "reward_gradient/noise", "reward_gradient/place"  # facts: [N, copies, D], [N]
RIVAL = "reward_gradient/rival"  # [N, 1, D]


@dataclass(frozen=True, kw_only=True)
class RewardGradient(AbstractUpdate):
    """Ascends the reward's gradient through the sampler: ReFL (arXiv:2304.05977), DRaFT (arXiv:2309.17400), DRTune (arXiv:2405.00760),
    and FlowBP (arXiv:2606.11075) where ``steps`` are ``CachedSteps``.

    loss = - mean min(R(x), limit) + coef md |x0 - x0_ref|^2, R the run's weighted sum of rewards, md the mean over a sample's numbers;
    x ends the path, walked again from the recorded state before the first step that carries gradient, with its recorded noises. For an
    ODE of a flow and all steps, dx/dtheta = - sum_k dt_k prod_{j > k} (I - dt_j dv_j/dx) dv_k/dtheta.

    - ``steps`` of all S steps: the gradient of the whole path, whatever weights drew it.
    - ``coef`` 0: no pull to the base. Otherwise it is on the clean samples that policy and base predict at one state of each recorded
      path, at a random step, in place of ReFL's pre-training loss.
    - ``limit`` below every R: no gradient.
    - a reward without slope is refused: it must be an ``AbstractSampleReward`` whose ``flat`` is empty, or an ``AbstractPairJudge``.
    - an ``AbstractPairJudge`` (OneReward, arXiv:2508.21066): each sample meets a rival, drawn for the same task by the model that the
      run began with, by the ODE from other noise. That is S more evaluations a sample.
    - ``CachedSteps``: the path is not walked again, and x is the recorded sample.

    S - first + copies evaluations of the network a sample (``CachedSteps``: its count), as many of them with a backward pass as steps
    carry gradient. With optimization.checkpointing a step keeps its input alone and is computed twice. ``rewards`` are filled with the
    run's.

    Left out: DRaFT's scaling of adapters at sampling.

    Confidence: verified.
    """

    steps: AbstractGradientSteps = GradientSteps()
    limit: float = math.inf
    coef: float = 0.0
    rewards: tuple[AbstractReward, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.coef < math.inf:
            raise ValueError(f"RewardGradient.coef is {self.coef}; it must be 0 (no pull to the base) or above")

    def models(self) -> dict[str, ModelSpec]:
        own = {POLICY: ModelSpec(optimizer=self.optimization.of_policy())}
        return own | ({REFERENCE: ModelSpec(first=True)} if self.coef or self.compares else {})

    @property
    def compares(self) -> bool:
        """Whether a judge of pairs is among the rewards."""
        return any(isinstance(reward, AbstractPairJudge) and reward.weight for reward in self.rewards)

    def of_run(self, rewards: tuple[AbstractReward, ...]) -> RewardGradient:
        return replace(self, rewards=rewards)

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Denoiser):
            yield Refusal("RewardGradient goes through the steps of a network that denoises: policy='Denoiser()'")
        elif isinstance(whole.run.policy, Denoiser) and whole.run.policy.jumps:
            yield Refusal(
                "RewardGradient walks by velocities, and policy.jumps=true has the network say mean ones of whole steps: set "
                "policy.jumps=false"
            )
        if whole.doing(STREAMS):
            yield from single_blocks("RewardGradient", whole)
        sampling = whole.run.sampling
        if isinstance(sampling, PathSampling) and (why := self.steps.misfit(sampling.sampler, sampling.max_length)):
            yield Refusal(why)
        if isinstance(sampling, PathSampling) and sampling.begins < 1 and whole.has(AbstractPairJudge):
            yield Refusal(
                "RewardGradient draws a rival for each sample from noise alone, and sampling.strength and told begin elsewhere: set "
                "sampling.strength=1 sampling.told=0, or another update"
            )
        if self.rewards:
            yield Refusal("update.rewards are the run's: leave them out, and set reward=")
        weighted = [reward for reward in whole.run.rewards if reward.weight]
        if not weighted:
            yield Refusal(
                "RewardGradient climbs a reward, and no reward of the run has a weight: reward='DigitClass(wanted=4)'"
            )
        for reward in weighted:
            if why := flat(reward):
                yield Refusal(
                    f"RewardGradient needs a differentiable reward, and of {reward.name!r} ({type(reward).__name__}) {why}; or set its "
                    "weight to 0, so that it only measures, or learn from scores: gimbal train flow_grpo"
                )

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """With the noises of the copies and the places of the pull, so that they do not depend on how the batch is split."""
        decisions = paths(batch)
        (rows, steps), shape = decisions.shape, decisions.state_NXD.shape[2:]
        generator = models.random("reward gradient", "of samples")
        noise = generator.standard_normal((rows, self.steps.copies, *shape), dtype="float32")
        facts = {NOISE: torch.from_numpy(noise), PLACE: torch.from_numpy(generator.integers(steps, size=rows))}
        if self.compares:
            noise_ND = torch.from_numpy(generator.standard_normal((rows, *shape), dtype="float32"))
            with torch.no_grad():
                facts[RIVAL] = drawn(models[REFERENCE], decisions.to(models.device), noise_ND.to(models.device))[
                    :, None
                ]
        return batch.with_columns({name: fact.to(models.device) for name, fact in facts.items()}), {}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        return weighed_alike(minibatch), {}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy, decisions, weight_N = acting(models), paths(batch), batch.facts["weight"]
        policy.model.eval()
        sample_ND, count, left = self.steps.ended(policy, decisions, models.random("reward gradient"), self._found)
        found = [sample_ND]
        found += [
            self.again(policy, decisions, sample_ND.detach(), noise_ND) for noise_ND in batch.facts[NOISE].unbind(1)
        ]
        sample_MD = torch.cat(found)
        rival_ND = batch.facts[RIVAL][:, 0].repeat(len(found), 1, 1, 1) if self.compares else None
        score_M = climbed(self.rewards, sample_MD, asked_of(decisions).repeat(len(found)), rival_ND)
        if not score_M.requires_grad:
            named = " + ".join(type(reward).__name__ for reward in self.rewards if reward.weight)
            raise ValueError(
                f"{named} has no gradient with respect to the samples, so there is nothing to ascend: compute of_samples from x_ND "
                "with torch's differentiable functions alone, or take an update that reads scores (gimbal train diffusion_nft)"
            )
        slope_MD = torch.autograd.grad(score_M.sum(), sample_MD, retain_graph=True)[0]
        weight_M = weight_N.repeat(len(found)) / len(found)
        value = -(weight_M * score_M.clamp(max=self.limit)).sum()
        held = {}
        if self.coef:
            pull = (weight_N * self.apart(policy, models[REFERENCE], decisions, batch.facts[PLACE])).sum()
            value, held = value + self.coef * pull, {"kl/clean": float(pull.detach())}
        told = {
            "score": float((weight_M * score_M.detach()).sum()),
            "slope": float((weight_M * slope_MD.flatten(1).norm(dim=-1)).sum()),
            "limited": float((weight_M * (score_M.detach() > self.limit)).sum()),
            "steps": float(weight_N.sum()) * count,
            "left": float(weight_N.sum()) * left,
        }
        yield Loss(
            of=(POLICY,),
            value=value,
            metrics={"loss": float(value.detach()), **held}
            | {f"reward_gradient/{name}": x for name, x in told.items()},
        )

    def apart(
        self, policy: DenoiserPolicy, reference: DenoiserPolicy, decisions: Paths, place_N: Tensor
    ) -> Float[Tensor, " N"]:
        """md |x0 - x0_ref|^2 of the clean samples that the two predict at these places of the recorded paths."""
        at = (torch.arange(len(place_N), device=place_N.device), place_N)
        x_ND, level_NL = decisions.state_NXD[at], decisions.level_NSL[at]
        told = (decisions.time_NS[at], decisions.label_N, decisions.given_ND)
        clean_ND, _ = policy.process.split(x_ND, self._found(policy, x_ND, *told), level_NL)
        with torch.no_grad():
            first_ND, _ = policy.process.split(x_ND, reference.found(x_ND, *told), level_NL)
        return (clean_ND - first_ND).square().flatten(1).mean(-1)

    def again(
        self,
        policy: DenoiserPolicy,
        decisions: Paths,
        sample_ND: Float[Tensor, "N ..."],
        noise_ND: Float[Tensor, "N ..."],
    ) -> Float[Tensor, "N ..."]:
        """What the network predicts of these samples, noised to where the last step begins."""
        level_NL = decisions.level_NSL[:, -1]
        signal_N, sigma_N = (samplers.wide(level_NL[:, i], sample_ND) for i in (0, 1))
        x_ND = signal_N * sample_ND + sigma_N * noise_ND
        found_ND = self._found(policy, x_ND, decisions.time_NS[:, -1], decisions.label_N, decisions.given_ND)
        return policy.process.split(x_ND, found_ND, level_NL)[0]

    def _found(
        self, policy: DenoiserPolicy, x_ND: Tensor, time_N: Tensor, label_N: Tensor, given_ND: Tensor | None
    ) -> Tensor:
        if self.optimization.checkpointing and torch.is_grad_enabled():
            return checkpoint(policy.found, x_ND, time_N, label_N, given_ND, use_reentrant=False)
        return policy.found(x_ND, time_N, label_N, given_ND)


def drawn(policy: DenoiserPolicy, decisions: Paths, noise_ND: Float[Tensor, "N ..."]) -> Float[Tensor, "N ..."]:
    """What a policy draws for the tasks of these paths by the ODE, at their noise levels, from this noise."""
    x_ND = noise_ND
    for k in range(decisions.shape[1]):
        level_NL, time_N = decisions.level_NSL[:, k], decisions.time_NS[:, k]
        x_ND, _ = policy.step(
            x_ND, level_NL, time_N, torch.zeros_like(time_N), decisions.label_N, ODE, decisions.given_ND
        )
    return x_ND


def asked_of(decisions: Paths) -> AskedSamples:
    given_ND = decisions.given_ND
    return AskedSamples(label_N=decisions.label_N, given_ND=None if given_ND is None else given_ND.flatten(1))


def climbed(
    rewards: tuple[AbstractReward, ...],
    sample_ND: Float[Tensor, "N ..."],
    asked: AskedSamples,
    rival_ND: Float[Tensor, "N ..."] | None = None,
) -> Float[Tensor, " N"]:
    """R of each sample, with its gradient."""
    total_N = sample_ND.new_zeros(len(sample_ND))
    for reward in rewards:
        if not reward.weight:
            continue
        if isinstance(reward, AbstractPairJudge):
            assert rival_ND is not None, "RewardGradient draws them"
            own_N = reward.gain(sample_ND.flatten(1), rival_ND.flatten(1), asked)
        else:
            assert isinstance(reward, AbstractSampleReward), "refused before"
            own_N = reward.of_samples(sample_ND.flatten(1), asked.label_N)
        total_N = total_N + reward.weight * own_N
    return total_N


def flat(reward: AbstractReward) -> str:
    """Why a reward has no gradient to learn from; "" where it has."""
    if isinstance(reward, AbstractPairJudge):
        return ""
    if isinstance(reward, AbstractSampleReward):
        return reward.flat and f"the gradient teaches nothing: {reward.flat}"
    return "only the score is known: write an AbstractSampleReward, in torch, and set reward=FILE.py:CLASS() (docs/image-updates.md)"
