"""Gradients of denoising losses on a linear network, against central differences of their equations, written out in float64."""

import copy
import math
from collections import namedtuple
from pathlib import Path

import made
import pytest
import torch
from torch import nn

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from diffusers.configuration_utils import FrozenDict

from gimbal.advantages import GroupCentered
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.learning.learner import Learner
from gimbal.learning.updates import forward_process
from gimbal.learning.updates.forward_process import (
    AdvantageWeightedMatching,
    DiffusionDPO,
    DiffusionGDRO,
    DiffusionNFT,
)
from gimbal.objectives import ClippedStep, NormalizedStep, StepKL
from gimbal.policies.denoiser import DenoiserPolicy
from gimbal.policies.diffusers import LoadedParts, Process
from gimbal.policies.paths import Paths, PathSampling
from gimbal.records import Task, TrainBatch

D, STEPS, ROWS, DRAWS = 4, 4, 4, 2
Said = namedtuple("Said", "sample")


class Linear(nn.Module):
    """v = M x + t c, on samples of one channel and 2x2 pixels."""

    config = FrozenDict(sample_size=2, in_channels=1, num_class_embeds=None)

    def __init__(self, seed):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.m = nn.Parameter(0.5 * torch.randn(D, D, generator=g))
        self.c = nn.Parameter(0.5 * torch.randn(D, generator=g))

    @property
    def dtype(self):
        return self.m.dtype

    def forward(self, x, timestep, class_labels=None):
        return Said((x.flatten(1) @ self.m.T + timestep[:, None] / 1000 * self.c).reshape(x.shape))


def policy_of(seed, scheduler):
    parts = LoadedParts(network=Linear(seed), process=Process(scheduler), place="unet")
    return DenoiserPolicy(parts, guidance=1.0, batch=8, origin=Path())


def values(policy):
    """Its weights in float64, flat."""
    return torch.cat([policy.model.m.detach().flatten(), policy.model.c.detach()]).double()


def said(w, x, t):
    """What the network says of one state at this time in [0, 1]."""
    return w[: D * D].reshape(D, D) @ x + t * w[D * D :]


def moved(policy, size, seed=5):
    """The same policy a little further on."""
    other, g = copy.deepcopy(policy), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(size * torch.randn(weight.shape, generator=g))
    return other


def differences(loss, w, h=1e-5):
    steps = h * torch.eye(len(w), dtype=torch.float64)
    return torch.stack([(loss(w + step) - loss(w - step)) / (2 * h) for step in steps])


def gradient(policy):
    return torch.cat([policy.model.m.grad.flatten(), policy.model.c.grad]).double()


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=2e-4 * float(theirs.abs().max()), rtol=2e-3)
    assert theirs.abs().min() > 0


def flow_mean(w, x, level, amplitude, time):
    """Of the SDE with the flow's marginals."""
    (_, t, _, s), v = level, said(w, x, time)
    g = amplitude * math.sqrt(t / (1 - (s if t == 1 else t)))
    return x - (t - s) * (v + g**2 / (2 * t) * (x + (1 - t) * v)), g * math.sqrt(t - s)


def ddim_mean(w, x, level, eta, time):
    """Of a network that says the noise."""
    (a, s, a2, s2), eps = level, said(w, x, time)
    std = eta * s2 / s * math.sqrt(1 - (a / a2) ** 2)
    return a2 * (x - s * eps) / a + math.sqrt(s2**2 - std**2) * eps, std


FLOW = (diffusers.FlowMatchEulerDiscreteScheduler, {}, "flow_sde", 0.7, flow_mean)
DDIM = (diffusers.DDIMScheduler, {"clip_sample": False}, "ddim", 1.0, ddim_mean)


@pytest.mark.parametrize("kind, options, sampler, noise, mean_of", [FLOW, DDIM], ids=["flow", "diffusion"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("surrogate", [ClippedStep, NormalizedStep])
def test_path_losses(kind, options, sampler, noise, mean_of, reduce, surrogate):
    old = policy_of(0, kind(**options))
    engine = Denoising(slots=ROWS).start(old)
    engine.load(0, old.weights())
    sampling = PathSampling(max_length=STEPS, sampler=sampler, noise=noise, reduce=reduce)
    for sample in range(ROWS):
        engine.submit(Request(group=0, task=Task(id="t"), sample=sample, sampling=sampling, seed=0))
    rollouts = [finished.rollout for _, finished in sorted(drained(engine).items())]
    paths = Paths.stack([rollout.decisions for rollout in rollouts])
    size = (
        0.01 if surrogate is NormalizedStep and sampler == "ddim" else 0.3
    )  # its exponent has the square of the shift
    policy, reference = moved(old, size), moved(old, 0.4, seed=6)
    advantage_N = torch.tensor([1.0, -1.0, 0.5, -2.0])
    objective, kl = surrogate(clip_low=0.2, clip_high=0.2), StepKL(coef=0.3)
    mask_NS = paths.drawn_NS

    found = policy.evaluate(paths, columns=("mean_NSD", "std_NS", "scale_NS", "shift_NSD"))
    held = reference.evaluate(paths, columns=("mean_NSD",)).columns["mean_NSD"].detach()
    batch = TrainBatch(
        mask_NS=mask_NS,
        proximal_NS=torch.stack([rollout.behavior_S for rollout in rollouts]),
        behavior_NS=torch.stack([rollout.behavior_S for rollout in rollouts]),
        advantage_NS=advantage_N[:, None] * mask_NS,
        facts={"reference/mean_NSD": held, **found.columns},
        live=frozenset({"mean_NSD", "shift_NSD"}),
    )
    terms = objective(found.logprob_NS, batch)
    (terms.loss_NS + kl(found.logprob_NS, batch).loss_NS)[mask_NS].mean().backward()
    clipped = terms.metrics["clip_ratio/low"] + terms.metrics["clip_ratio/high"]
    assert 0 < clipped[mask_NS].float().mean() < 1, "some ratios are clipped and some are not"

    scale = 1.0 if reduce == "sum" else 1 / D

    def loss(w):
        total = 0.0
        for n, k in mask_NS.nonzero().tolist():
            x, after = (paths.state_NXD[n, place].flatten().double() for place in (k, k + 1))
            level, time = paths.level_NSL[n, k].double().tolist(), float(paths.time_NS[n, k]) / 1000
            mean, std = mean_of(w, x, level, noise, time)
            first, _ = mean_of(values(old), x, level, noise, time)
            apart = (((after - first) ** 2).sum() - ((after - mean) ** 2).sum()) * scale / (2 * std**2)
            if surrogate is NormalizedStep:
                apart = std * apart + scale * ((mean - first) ** 2).sum() / (2 * std)
            r, a = apart.exp(), float(advantage_N[n])
            bound = min(max(float(r), 1 - scale * 0.2), 1 + scale * 0.2)
            total -= min(r * a, torch.tensor(bound * a, dtype=torch.float64))
            there, _ = mean_of(values(reference), x, level, noise, time)
            total += 0.3 * scale * ((mean - there) ** 2).sum() / (2 * std**2)
        return total / int(mask_NS.sum())

    close(gradient(policy), differences(loss, values(policy)))


class Forward:
    """An update at a policy that is neither old nor the reference, and what its equation reads."""

    def __init__(self, update, groups=(0, 0, 1, 1)):
        self.old, self.reference = policy_of(0, diffusers.FlowMatchEulerDiscreteScheduler()), None
        learner = Learner(copy.deepcopy(self.old), update, first=lambda: copy.deepcopy(self.old))
        batch = learner.prepare(made.finished((1.0, -1.0, 0.5, 0.0), groups, side=2))
        with torch.no_grad():
            for own, other in zip(learner.policy.parameters(), moved(self.old, 0.05).parameters(), strict=True):
                own.copy_(other)
        self.told = learner.forward_backward(batch)
        self.gradient, self.w, self.w_old = gradient(learner.policy), values(learner.policy), values(self.old)
        self.size_N = batch.facts[forward_process.SIZE].double().tolist()
        self.rows = [
            (
                n,
                float(batch.facts[forward_process.PLACE][n, k]),
                batch.facts[forward_process.EPS][n, k].flatten().double(),
            )
            for n in range(ROWS)
            for k in range(DRAWS)
        ]
        self.clean_ND = batch.decisions.sample_ND.flatten(1).double()

    def noised(self, n, t, eps):
        return (1 - t) * self.clean_ND[n] + t * eps, eps - self.clean_ND[n]

    def missed(self, w, n, t, eps):
        x, wanted = self.noised(n, t, eps)
        return ((said(w, x, t) - wanted) ** 2).mean()


def test_advantage_weighted_matching():
    case = Forward(AdvantageWeightedMatching(draws=DRAWS, coef=0.0, clip=0.05, advantage=GroupCentered()))

    def loss(w):
        total = 0.0
        for n, t, eps in case.rows:
            r, a = (case.missed(case.w_old, n, t, eps) - case.missed(w, n, t, eps)).exp(), case.size_N[n]
            total -= min(r * a, torch.tensor(min(max(float(r), 0.95), 1.05) * a, dtype=torch.float64))
        return total / len(case.rows)

    close(case.gradient, differences(loss, case.w))


@pytest.mark.parametrize("b", [1.0, 0.5])
def test_diffusion_nft(b):
    """Its self-normalisation is a constant, so it is taken where the policy stands."""
    limit, coef = 2.0, 0.1
    update = DiffusionNFT(draws=DRAWS, coef=coef, b=b, limit=limit, advantage=GroupCentered())
    case = Forward(update)

    def error(w, n, t, eps, sign):
        x, _ = case.noised(n, t, eps)
        own, old = said(w, x, t), said(case.w_old, x, t)
        clean = x - t * ((1 - sign * b) * old + sign * b * own)
        return clean - case.clean_ND[n]

    def loss(w):
        total = 0.0
        for n, t, eps in case.rows:
            good = min(max(0.5 + case.size_N[n] / (2 * limit), 0), 1)
            for sign, share in ((1, good), (-1, 1 - good)):
                fixed = max(float(error(case.w, n, t, eps, sign).abs().mean()), 1e-5)
                total += limit / b * share * (error(w, n, t, eps, sign) ** 2).mean() / fixed
            x, _ = case.noised(n, t, eps)
            total += coef * ((said(w, x, t) - said(case.w_old, x, t)) ** 2).mean()
        return total / len(case.rows)

    close(case.gradient, differences(loss, case.w))


def test_diffusion_dpo():
    """The loss whose gradient it has: softplus((beta / 2) sum_g A d) / (beta / 2), of each group and draw."""
    beta = 3.0
    case = Forward(DiffusionDPO(draws=DRAWS, beta=beta, advantage=GroupCentered()))

    def loss(w):
        total = 0.0
        for group in (0, 1):
            for k in range(DRAWS):
                margin = 0.0
                for n in (2 * group, 2 * group + 1):
                    row = case.rows[n * DRAWS + k]
                    margin += case.size_N[n] * (case.missed(w, *row) - case.missed(case.w_old, *row))
                total += nn.functional.softplus(beta / 2 * margin) / (beta / 2)
        return total / len(case.rows)

    close(case.gradient, differences(loss, case.w))


def test_diffusion_gdro():
    """The loss of the card, over all samples: for each group and draw, a softmax for each place of the ranking."""
    beta, tau, gamma = 2.0, 0.7, 0.3
    update = DiffusionGDRO(draws=DRAWS, beta=beta, tau=tau, gamma=gamma, advantage=GroupCentered())
    case = Forward(update, (0, 0, 0, 0))
    order = sorted(range(ROWS), key=lambda n: -case.size_N[n])

    def loss(w):
        total = 0.0
        for k in range(DRAWS):
            missed = [case.missed(w, *case.rows[n * DRAWS + k]) for n in order]
            s = [
                -beta * (m - case.missed(case.w_old, *case.rows[n * DRAWS + k]))
                for m, n in zip(missed, order, strict=True)
            ]
            for i in range(ROWS - 1):
                wanted = torch.softmax(torch.tensor([case.size_N[n] / tau for n in order[i:]], dtype=torch.float64), 0)
                total += torch.stack(s[i:]).logsumexp(0) - (wanted * torch.stack(s[i:])).sum()
            total += gamma * missed[0]
        return total / len(case.rows)

    close(case.gradient, differences(loss, case.w))
    assert case.told["gdro/loss"] == pytest.approx(
        float(loss(case.w))
        - gamma
        * sum(float(case.missed(case.w, *case.rows[order[0] * DRAWS + k])) for k in range(DRAWS))
        / len(case.rows),
        rel=1e-4,
    )
