"""Updates that learn from finished samples: each is noised again, and the network's prediction is pulled or pushed.

The path that led to a sample is not read, so any solver works, such as the ODE (sampling.sampler=ode). For each sample x0 and each of
``draws`` times and noises: x_t = signal x0 + noise eps, v* the network's target.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.composition import FORWARD, AbstractPart, Composition, Refusal, Verdict
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Metrics, Models, ModelSpec
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy
from gimbal.policies.paths import NO_LABEL, Paths
from gimbal.records import TrainBatch

OLD, REFERENCE, AVERAGE = "old", "reference", "average"
PLACE, EPS, SIZE = "forward/place", "forward/eps", "forward/advantage"  # facts: [N, K], [N, K, D], [N]


@dataclass(frozen=True, kw_only=True)
class Noised:
    """The samples of a micro-batch, each noised K times: J = N K rows."""

    clean_JD: Tensor
    state_JD: Tensor
    level_JL: Tensor
    time_J: Tensor
    label_J: Tensor
    wanted_JD: Tensor
    given_JD: Tensor | None = None
    draws: int = 1

    @classmethod
    def of(
        cls, policy: DenoiserPolicy, clean_JD: Tensor, eps_JD: Tensor, place_J: Tensor, decisions: Paths, draws: int = 1
    ) -> Noised:
        """These samples with these noises at these places of the policy's process, asked for as the recorded ones were."""
        state_JD, level_JL, time_J, wanted_JD = policy.process.noised(clean_JD, eps_JD, place_J)
        given_ND = decisions.given_ND
        return cls(
            clean_JD=clean_JD,
            state_JD=state_JD,
            level_JL=level_JL,
            time_J=time_J,
            label_J=decisions.label_N.repeat_interleave(draws, 0),
            wanted_JD=wanted_JD,
            given_JD=None if given_ND is None else given_ND.repeat_interleave(draws, 0),
            draws=draws,
        )

    def said(self, policy: DenoiserPolicy) -> Float[Tensor, "J ..."]:
        """A network's predictions for them."""
        return policy.found(self.state_JD, self.time_J, self.label_J, self.given_JD)

    def missed(self, said_JD: Float[Tensor, "J ..."]) -> Float[Tensor, "N K"]:
        """md |v - v*|^2, the mean over the dimensions."""
        return self.per_sample((said_JD - self.wanted_JD).square().flatten(1).mean(-1))

    def per_sample(self, x_J: Float[Tensor, " J"]) -> Float[Tensor, "N K"]:
        return x_J.reshape(-1, self.draws)


@dataclass(frozen=True, kw_only=True)
class AbstractForwardProcess(AbstractUpdate, ABC):
    """Noises samples again, ``draws`` times per pass, and weights them by ``advantage``, one number per sample."""

    by_group: ClassVar[bool] = False  # whether all samples of a group get the same places and noises

    advantage: AbstractAdvantage = field(default_factory=lambda: BatchScaled(limit=5.0))
    draws: int = 4

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"{type(self).__name__}.draws is {self.draws}; it must be at least 1")

    @abstractmethod
    def matched(
        self, models: Models, batch: TrainBatch, noised: Noised
    ) -> tuple[Float[Tensor, "N K"], dict[str, Tensor]]:
        """Loss of each sample and draw, and metrics [N, K]."""

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Denoiser):
            yield Refusal(f"{type(self).__name__} noises samples for a network that denoises: policy='Denoiser()'")
        if self.draws > whole.run.sampling.max_length:
            yield Refusal(
                f"update.draws is {self.draws}, and a path has {whole.run.sampling.max_length} steps, no more draws than steps: set "
                f"update.draws={whole.run.sampling.max_length}, or sampling.max_length={self.draws}"
            )

    def fewest(self) -> int:
        return self.advantage.fewest

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """With times and noises sampled for all of it, so that they do not depend on how it is split."""
        samples_ND = paths(batch).sample_ND
        n, shape = len(samples_ND), tuple(samples_ND.shape[1:])
        report = dict(self.advantage.report(batch))
        advantage_NS = self.advantage.of_rows(batch)
        counted_N = batch.mask_NS.sum(-1).clamp(min=1)
        size_N = (advantage_NS * batch.mask_NS).sum(-1) / counted_N
        of_N = torch.arange(n)
        if self.by_group:
            of_N = batch.column("group_N", self).cpu().unique(return_inverse=True)[1]
        found = placed(models, of_N, self.draws, shape)
        batch = replace(batch, advantage_NS=advantage_NS).with_columns({SIZE: size_N} | found)
        return batch.to(models.device), report

    def of_all(
        self, models: Models, batch: TrainBatch, of: Callable[[Noised], Float[Tensor, "N K"]]
    ) -> Float[Tensor, "N K"]:
        """Numbers of each sample and draw, without gradient. They travel as columns of decisions do, in the first K places."""

        def columns(micro: TrainBatch) -> dict[str, Tensor]:
            found_NK = of(noised(models, micro))
            return {"found": nn.functional.pad(found_NK, (0, micro.shape[1] - found_NK.shape[1]))}

        return models.in_micro_batches(batch, columns)["found"][:, : self.draws]

    def behind(self, models: Models, batch: TrainBatch) -> Float[Tensor, "N K"]:
        """d = md |v - v*|^2 - md |v_ref - v*|^2 of each sample and draw, without gradient."""

        def apart(rows: Noised) -> Float[Tensor, "N K"]:
            return rows.missed(rows.said(acting(models))) - rows.missed(rows.said(models[REFERENCE]))

        return self.of_all(models, batch, apart)

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        return weighed_alike(minibatch), {}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        weight_N = batch.facts["weight"]
        loss_NK, told = self.matched(models, batch, noised(models, batch))
        value = (weight_N * loss_NK.mean(-1)).sum()
        figures = {name: float((weight_N * x_NK.detach().mean(-1)).sum()) for name, x_NK in told.items()}
        yield Loss(of=(POLICY,), value=value, metrics={"loss": float(value.detach()), **figures})


@dataclass(frozen=True, kw_only=True)
class DiffusionNFT(AbstractForwardProcess):
    """Contrastive matching: towards good samples and, by the mirror image, away from bad ones (DiffusionNFT, arXiv:2509.16117).

    r = clip(1/2 + A / (2 limit), 0, 1);  v+ = (1 - b) v_old + b v,  v- = (1 + b) v_old - b v;  x0+, x0- the clean samples they predict;
    l = md (x0 hat - x0)^2 / sg max(md |x0 hat - x0|, 1e-5);  loss = (limit / b) (r l+ + (1 - r) l-) + coef md |v - v_ref|^2.

    v is what the network says of a noised sample, v* what it should say; md is the mean over a sample's numbers, and sg means: without
    gradient. v_old uses the run's initial weights, then old <- decay old + (1 - decay) policy after each step, with
    decay = min(slow x steps, most).

    - r = 1/2 everywhere: the policy stays at old.
    - ``b`` = 1 and r = 1: matching on the samples (self-normalised).
    - ``slow`` = 0: old is the policy at the start of each step.
    - without the self-normalisation, at policy = old the gradient is b times that of (2 r - 1) |v - v*|^2: AWM with A / limit.

    Published: b 1 (or .1 for several rewards), limit 5, coef 1e-4, slow .001, most .5; samples from old. Ours: from the policy, whose
    weights samplers have, at new random times instead of the sampler's own. In two dimensions b below .5 diverged.

    Confidence: verified.
    """

    b: float = 1.0
    limit: float = 5.0
    slow: float = 0.001
    most: float = 0.5
    coef: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.b <= 1 or self.limit <= 0:
            raise ValueError(
                f"DiffusionNFT.b is {self.b} and limit {self.limit}; b is above 0 and at most 1, limit above 0"
            )
        if not 0 <= self.slow <= 1 or not 0 <= self.most < 1:
            raise ValueError(f"DiffusionNFT.slow is {self.slow} and most {self.most}; from 0 to 1, and most below 1")

    def models(self) -> dict[str, ModelSpec]:
        own = {POLICY: ModelSpec(optimizer=self.optimization.of_policy()), OLD: ModelSpec(follows=POLICY)}
        return own | ({REFERENCE: ModelSpec(first=True)} if self.coef else {})

    def matched(
        self, models: Models, batch: TrainBatch, noised: Noised
    ) -> tuple[Float[Tensor, "N K"], dict[str, Tensor]]:
        good_N = (0.5 + batch.facts[SIZE] / (2 * self.limit)).clamp(0, 1)
        now_JD = noised.said(acting(models))
        with torch.no_grad():
            old_JD = noised.said(models[OLD])

        def error(said_JD: Tensor) -> Float[Tensor, "N K"]:
            clean_JD, _ = acting(models).process.split(noised.state_JD, said_JD, noised.level_JL)
            apart_JD = (clean_JD - noised.clean_JD).flatten(1)
            size_J = apart_JD.detach().abs().mean(-1).clamp(min=1e-5)
            return noised.per_sample(apart_JD.square().mean(-1) / size_J)

        up_NK = error((1 - self.b) * old_JD + self.b * now_JD)
        down_NK = error((1 + self.b) * old_JD - self.b * now_JD)
        loss_NK = self.limit / self.b * (good_N[:, None] * up_NK + (1 - good_N[:, None]) * down_NK)
        apart_NK = noised.per_sample((now_JD - old_JD).square().flatten(1).mean(-1))
        told = {"nft/good": good_N[:, None].expand_as(loss_NK), "nft/apart": apart_NK}
        if self.coef:
            with torch.no_grad():
                first_JD = noised.said(models[REFERENCE])
            pull_NK = noised.per_sample((now_JD - first_JD).square().flatten(1).mean(-1))
            loss_NK, told = loss_NK + self.coef * pull_NK, told | {"kl/velocity": pull_NK}
        return loss_NK, told

    @torch.no_grad()
    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        decay = min(self.slow * models.version, self.most)
        for own, other in zip(models[OLD].parameters(), models.policy.parameters(), strict=True):
            own.lerp_(other, 1 - decay)
        return {"nft/decay": decay}


@dataclass(frozen=True, kw_only=True)
class AdvantageWeightedMatching(AbstractForwardProcess):
    """The clipped surrogate on the matching loss instead of a log-probability (AWM, arXiv:2509.25050).

    lp = - md |v - v*|^2 at the same times and noises for the policy now and at the start of the step: r = exp(lp - lp_old);
    loss = - min(r A, clip(r, 1 - clip, 1 + clip) A) + coef md |v - v_average|^2, ``average`` following the policy by ``rate`` per move.
    v is what the network says of a noised sample, v* what it should say; md is the mean over a sample's numbers.

    - at r = 1 its gradient is that of A md |v - v*|^2: matching weighted by the advantage.
    - ``clip`` = inf and ``coef`` = 0: no bound at all, which diverged in two dimensions.

    Published: clip 1e-5 (large images), coef .1, rate .1; only uniform time weights are implemented here.

    Confidence: verified.
    """

    clip: float = 0.05
    coef: float = 0.1
    rate: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self, self.clip, self.clip)

    def models(self) -> dict[str, ModelSpec]:
        own = {POLICY: ModelSpec(optimizer=self.optimization.of_policy())}
        return own | ({AVERAGE: ModelSpec(follows=POLICY, rate=self.rate)} if self.coef else {})

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        batch, report = super().prepare(models, batch)

        def missed(rows: Noised) -> Float[Tensor, "N K"]:
            return rows.missed(rows.said(acting(models)))

        return batch.with_columns({"forward/old": self.of_all(models, batch, missed)}), report

    def matched(
        self, models: Models, batch: TrainBatch, noised: Noised
    ) -> tuple[Float[Tensor, "N K"], dict[str, Tensor]]:
        now_JD = noised.said(acting(models))
        log_ratio_NK = batch.facts["forward/old"] - noised.missed(now_JD)
        size_NK = batch.facts[SIZE][:, None].expand_as(log_ratio_NK)
        surrogate_NK, told = clip_pessimistically(log_ratio_NK.exp(), size_NK, self.clip, self.clip)
        if not self.coef:
            return -surrogate_NK, told
        with torch.no_grad():
            slow_JD = noised.said(models[AVERAGE])
        pull_NK = noised.per_sample((now_JD - slow_JD).square().flatten(1).mean(-1))
        return -surrogate_NK + self.coef * pull_NK, told | {"kl/velocity": pull_NK}


@dataclass(frozen=True, kw_only=True)
class DiffusionDPO(AbstractForwardProcess):
    """Preferences among a group's samples, by how much better than the reference the policy matches each (Diffusion-DPO,
    arXiv:2311.12908, in its group form, DGPO, arXiv:2510.08425).

    d_i = md |v - v*|^2 - md |v_ref - v*|^2, one time and noise for the whole group; u_g = sg sigmoid((beta / 2) sum_g A_i d_i);
    loss = u_g A_i md |v - v*|^2. (v is what the network says of a noised sample, v* what it should say; md the mean over a sample's
    numbers; sg: without gradient.) Its gradient is that of - log sigmoid(- (beta / 2) sum_g A_i d_i), up to beta / 2.

    - groups of two with A = +1 and -1: the gradient of Diffusion-DPO.
    - policy = reference: u_g = 1/2 everywhere.
    - all rewards of a group equal: no loss.

    beta is 2,000 to 5,000 for means over 16,000 to 65,000 dimensions there; here it must fit the spread of d: the metric
    ``dpo/margin`` is the mean of |(beta / 2) sum_g A_i d_i|, and should be about 1.

    Confidence: verified.
    """

    by_group: ClassVar[bool] = True

    beta: float = 50.0

    def models(self) -> dict[str, ModelSpec]:
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy()), REFERENCE: ModelSpec(first=True)}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """``forward/undecided``: u of each sample's group and draw."""
        minibatch, _ = super().survey(models, minibatch)

        weighed_NK = minibatch.facts[SIZE][:, None] * self.behind(models, minibatch)
        group_N = minibatch.column("group_N", self).unique(return_inverse=True)[1]
        sum_GK = weighed_NK.new_zeros(int(group_N.max()) + 1, weighed_NK.shape[1]).index_add(0, group_N, weighed_NK)
        margin_NK = (self.beta / 2 * sum_GK)[group_N]
        told = {"dpo/margin": float(margin_NK.abs().mean())}
        return minibatch.with_columns({"forward/undecided": margin_NK.sigmoid()}), told

    def matched(
        self, models: Models, batch: TrainBatch, noised: Noised
    ) -> tuple[Float[Tensor, "N K"], dict[str, Tensor]]:
        undecided_NK = batch.facts["forward/undecided"]
        loss_NK = undecided_NK * batch.facts[SIZE][:, None] * noised.missed(noised.said(acting(models)))
        return loss_NK, {"dpo/undecided": undecided_NK}


@dataclass(frozen=True, kw_only=True)
class DiffusionGDRO(AbstractForwardProcess):
    """Ranks a group's samples by their rewards, as Diffusion-DPO ranks pairs (GDRO, arXiv:2601.02036).

    s_i = - beta (md |v - v*|^2 - md |v_ref - v*|^2), one time and noise for the whole group of k samples;
    q_i(j) = softmax of A_j / tau over the j with A_j <= A_i; with i over the samples above the lowest,
    loss = (1 / k) (sum_i [log sum_{j: A_j <= A_i} exp(s_j) - sum_j q_i(j) s_j] + gamma md |v - v*|^2 of the best).
    v is what the network says of a noised sample, v* what it should say; md is the mean over a sample's numbers.

    - groups of two, tau to 0, gamma = 0: - (1 / 2) log sigmoid(s_1 - s_2), Diffusion-DPO with twice this beta.
    - tau to 0, no ties: - (1 / k) log of the Plackett-Luce likelihood of the ranking.
    - policy = reference: a gradient by q minus equal shares; loss = (1 / k) log k! without ties.
    - tau to infinity there: no gradient, whatever the rewards.
    - tied samples: their order decides nothing, and the best ones share gamma.
    - all rewards of a group equal: no loss.

    A is centred within the group, which no softmax sees, so tau is in the units of the reward. beta must fit the spread of d: the
    metric ``gdro/spread`` is the mean standard deviation of s in a group, and should be about 1.

    Published: beta 6 to 12 (the reduction of the squares is not known), gamma 0.5 to 1, tau 0.05, k = 6 of 16 samples that the base
    model drew beforehand. Ours: samples of the present policy, all of a group.

    Confidence: partial.
    """

    by_group: ClassVar[bool] = True

    advantage: AbstractAdvantage = field(default_factory=GroupCentered)
    beta: float = 50.0
    tau: float = 0.05
    gamma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta <= 0 or self.tau <= 0 or self.gamma < 0:
            raise ValueError(
                f"DiffusionGDRO.beta is {self.beta}, tau {self.tau} gamma {self.gamma}; beta and tau must be above 0, gamma at least 0"
            )

    def models(self) -> dict[str, ModelSpec]:
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy()), REFERENCE: ModelSpec(first=True)}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """``forward/pull`` and ``forward/best``: what each sample's matching loss is multiplied by."""
        minibatch, _ = super().survey(models, minibatch)
        s_NK, size_N = -self.beta * self.behind(models, minibatch), minibatch.facts[SIZE]
        group_N = minibatch.column("group_N", self).unique(return_inverse=True)[1]
        pull_NK, best_N, losses, spreads = torch.zeros_like(s_NK), torch.zeros_like(size_N), [], []
        for g in range(int(group_N.max()) + 1):
            rows = (group_N == g).nonzero()[:, 0]
            own_GK, own_G = s_NK[rows], size_N[rows]
            # By value and not by rank, so that the order of tied samples decides nothing.
            better_II, ranked_G = own_G > own_G[:, None], own_G > own_G.min()
            wanted_II = (own_G / self.tau).expand_as(better_II).masked_fill(better_II, -math.inf).softmax(-1)
            among_IIK = own_GK.expand(len(rows), -1, -1).masked_fill(better_II[..., None], -math.inf)
            pull_NK[rows] = self.beta * (wanted_II[..., None] - among_IIK.softmax(1))[ranked_G].sum(0)
            best_G = ranked_G & (own_G == own_G.max())
            best_N[rows] = self.gamma * best_G / best_G.sum().clamp(min=1)
            losses.append((among_IIK.logsumexp(1) - wanted_II @ own_GK)[ranked_G].sum(0).mean() / len(rows))
            spreads.append(own_GK.std(0, correction=0).mean())
        told = {"gdro/loss": float(torch.stack(losses).mean()), "gdro/spread": float(torch.stack(spreads).mean())}
        return minibatch.with_columns({"forward/pull": pull_NK, "forward/best": best_N}), told

    def matched(
        self, models: Models, batch: TrainBatch, noised: Noised
    ) -> tuple[Float[Tensor, "N K"], dict[str, Tensor]]:
        pull_NK, best_N = batch.facts["forward/pull"], batch.facts["forward/best"]
        return (pull_NK + best_N[:, None]) * noised.missed(noised.said(acting(models))), {"gdro/pull": pull_NK.abs()}


def weighed_alike(minibatch: TrainBatch) -> TrainBatch:
    """With the fact ``weight``: the same for each sample, 1 in all."""
    there_N = minibatch.mask_NS.any(-1).float()
    return minibatch.with_columns({"weight": there_N / there_N.sum().clamp(min=1)})


def paths(batch: TrainBatch) -> Paths:
    decisions = batch.decisions
    if not isinstance(decisions, Paths):
        raise ValueError(
            f"forward processes learn from samples of denoising policies, not from {type(decisions).__name__}"
        )
    return decisions


def classes(batch: TrainBatch, reader: AbstractPart) -> Int[Tensor, " N"]:
    """The class of each row: that of its episode, where a block of a stream was not told it; NO_LABEL where none was."""
    label_N, episode_N = paths(batch).label_N, batch.column("episode_N", reader).unique(return_inverse=True)[1]
    label_E = label_N.new_full((int(episode_N.max()) + 1,), NO_LABEL)
    return label_E.scatter_reduce(0, episode_N, label_N, "amax")[episode_N]


def acting(models: Models) -> DenoiserPolicy:
    policy = models.policy
    if not isinstance(policy, DenoiserPolicy):
        raise ValueError(
            f"forward processes train denoising policies, not {type(policy).__name__}: policy='Denoiser()'"
        )
    return policy


def placed(models: Models, of_N: Int[Tensor, " N"], draws: int, shape: tuple[int, ...]) -> dict[str, Tensor]:
    """The facts of the places and noises that samples get; those with one number in ``of_N`` get the same."""
    generator, distinct = models.random("forward process"), int(of_N.max()) + 1
    place = torch.from_numpy(generator.random((distinct, draws), dtype="float32"))[of_N]
    eps = torch.from_numpy(generator.standard_normal((distinct, draws, *shape), dtype="float32"))[of_N]
    return {PLACE: place, EPS: eps}


def noised(models: Models, batch: TrainBatch) -> Noised:
    """The samples of these rows at the places and with the noises of the batch."""
    place_NK, eps_NKD = batch.facts[PLACE], batch.facts[EPS]
    draws, decisions = place_NK.shape[1], paths(batch)
    clean_JD = decisions.sample_ND.repeat_interleave(draws, 0)
    return Noised.of(acting(models), clean_JD, eps_NKD.flatten(0, 1), place_NK.flatten(), decisions, draws)
