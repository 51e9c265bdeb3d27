"""NormalizedStep: its ratio has mean 0 and one size at all noise levels, and near the sampler it is Reinforce scaled."""

import math

import pytest
import torch

from gimbal.objectives import NormalizedStep
from gimbal.policies.samplers import log_density
from gimbal.records import TrainBatch

D, MANY = 16, 20_000


def steps(std, shift, scale=1.0, advantage=1.0, width=math.inf, live=False):
    """(terms, logprob, mean) of draws from N(0, std^2) under a policy whose mean is shifted by so much in all."""
    z = torch.randn(MANY, D, generator=torch.Generator().manual_seed(0))
    after, many = std * z, torch.full((MANY,), std)
    mean = torch.full((MANY, D), shift / math.sqrt(D), requires_grad=live)
    logprob, behavior = (log_density(after, m, many, scale)[:, None] for m in (mean, torch.zeros(MANY, D)))
    facts = {"std_NS": many[:, None], "shift_NSD": mean[:, None], "scale_NS": torch.full((MANY, 1), scale)}
    batch = TrainBatch(
        mask_NS=torch.ones(MANY, 1, dtype=torch.bool),
        behavior_NS=behavior.detach(),
        advantage_NS=torch.full((MANY, 1), advantage),
        facts=facts,
        live=frozenset({"shift_NSD"}),
    )
    return NormalizedStep(clip_low=width, clip_high=width)(logprob, batch), logprob, mean, z


@pytest.mark.parametrize("scale", [1.0, 1 / D])
@pytest.mark.parametrize("std", [0.05, 0.3, 2.0])
def test_the_log_ratio_is_the_drawn_noise_along_the_shift(std, scale):
    shift = 0.02
    terms, _, mean, z = steps(std, shift, scale)
    found = terms.metrics["ratio/normalized"][:, 0]
    torch.testing.assert_close(found, scale * (z * mean).sum(-1), atol=2e-5 * max(1.0, shift / std), rtol=1e-3)
    assert abs(float(found.mean())) < 4 * scale * shift / math.sqrt(MANY)
    assert float(found.std()) == pytest.approx(scale * shift, rel=0.03), "whatever the noise level"


def test_both_sides_are_clipped_alike_where_the_plain_ratio_hardly_meets_the_upper_one():
    shift = std = 0.3
    high = steps(std, shift, advantage=1.0, width=0.2)[0].metrics["clip_ratio/high"].mean()
    low = steps(std, shift, advantage=-1.0, width=0.2)[0].metrics["clip_ratio/low"].mean()
    expected = [0.5 * math.erfc(math.log(x) * sign / shift / math.sqrt(2)) for x, sign in ((1.2, 1), (0.8, -1))]
    assert [float(high), float(low)] == pytest.approx(expected, abs=0.02)
    _, logprob, _, z = steps(std, shift)
    plain = (logprob[:, 0] - log_density(std * z, torch.zeros(MANY, D), torch.full((MANY,), std), 1.0)).exp()
    assert float((plain < 0.8).float().mean()) > float((plain > 1.2).float().mean()) + 0.2


@pytest.mark.parametrize("std", [0.1, 1.5])
def test_at_the_sampler_its_gradient_is_that_of_reinforce_scaled(std):
    terms, logprob, mean, _ = steps(std, 0.0, advantage=-0.7, live=True, width=0.1)
    assert torch.equal(terms.loss_NS, torch.full((MANY, 1), 0.7))
    (ours,) = torch.autograd.grad(terms.loss_NS.sum(), mean, retain_graph=True)
    (plain,) = torch.autograd.grad((0.7 * logprob).sum(), mean)
    torch.testing.assert_close(ours, std * plain)
