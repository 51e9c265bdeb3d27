"""GTR: the Gaussian pull, its limits, and several anchors at once."""

import math
from dataclasses import replace

import pytest
import torch

from gimbal.objectives import ClippedRatio, Reinforce
from gimbal.objectives.surrogates.gaussian_trust import GaussianTrust
from gimbal.ops import k2
from gimbal.records import TrainBatch


def case(past=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(4, 5, generator=g, dtype=torch.float64)  # noqa: E731
    logprob_NS = -draw().abs()
    return logprob_NS, TrainBatch(
        mask_NS=torch.arange(5) < torch.tensor([[5], [2], [3], [1]]),
        proximal_NS=logprob_NS + 0.3 * draw(),
        advantage_NS=draw(),
        facts={f"anchor/{k}": logprob_NS + 0.3 * draw() for k in range(1, past + 1)},
    )


def value_and_gradient(objective, logprob_NS, batch):
    x = logprob_NS.clone().requires_grad_()
    loss = objective(x, batch).loss_NS.sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def close(first, second, atol=1e-6):
    for x, y in zip(first, second, strict=True):
        torch.testing.assert_close(x, y, atol=atol, rtol=1e-6)


@pytest.mark.parametrize("clip", [math.inf, 0.2])
def test_strength_0_is_the_surrogate_with_the_same_clips(clip):
    logprob_NS, batch = case()
    found = value_and_gradient(GaussianTrust(strength=0.0, clip_low=clip, clip_high=clip), logprob_NS, batch)
    close(found, value_and_gradient(ClippedRatio(clip_low=clip, clip_high=clip), logprob_NS, batch))


def test_a_wide_kernel_is_a_quadratic_penalty():
    logprob_NS, batch = case(past=0)
    sigma, c = 1e4, 3.0
    quiet = replace(batch, advantage_NS=torch.zeros_like(batch.advantage_NS))
    x = logprob_NS.clone().requires_grad_()
    loss = c * k2(x, batch.proximal_NS)[batch.mask_NS].sum()
    expected = loss.detach(), torch.autograd.grad(loss, x)[0]
    close(value_and_gradient(GaussianTrust(strength=c * sigma**2, sigma=sigma), logprob_NS, quiet), expected)


def test_no_snapshots_or_no_memory_is_the_kernel_of_the_proximal_policy():
    logprob_NS, batch = case(past=2)
    alone = replace(batch, facts={})
    gap_NS = logprob_NS - batch.proximal_NS
    price_NS = 0.2 * (1 - (-gap_NS.square() / (2 * 0.25**2)).exp())
    expected_NS = (price_NS - gap_NS.exp() * batch.advantage_NS).where(batch.mask_NS, 0)
    torch.testing.assert_close(GaussianTrust()(logprob_NS, alone).loss_NS, expected_NS)
    for responsible in (False, True):
        found = value_and_gradient(GaussianTrust(decay=0.0, responsible=responsible), logprob_NS, batch)
        close(found, value_and_gradient(GaussianTrust(), logprob_NS, alone))


def test_at_one_anchor_it_is_reinforce():
    logprob_NS, batch = case(past=0)
    here = replace(batch, proximal_NS=logprob_NS)
    _, gradient_NS = value_and_gradient(GaussianTrust(), logprob_NS, here)
    close([gradient_NS], [value_and_gradient(Reinforce(), logprob_NS, here)[1]])


def one(gap, advantage=0.0, **past):
    lp = torch.tensor([[-1.0]]).double()
    facts = {f"anchor/{name[1:]}": lp - value for name, value in past.items()}
    return lp, TrainBatch(
        mask_NS=torch.tensor([[True]]),
        proximal_NS=lp - gap,
        advantage_NS=torch.tensor([[advantage]]).double(),
        facts=facts,
    )


def test_the_pull_is_greatest_at_sigma_and_lets_go_far_away():
    pull = {gap: float(value_and_gradient(GaussianTrust(), *one(gap))[1]) for gap in (0.01, 0.2, 0.25, 0.3, 1.5, 50.0)}
    assert pull[0.25] == pytest.approx(0.2 / (0.25 * math.sqrt(math.e)))
    assert pull[0.01] == pytest.approx(0.2 / 0.25**2 * 0.01, rel=1e-2)
    assert max(pull.values()) == pull[0.25] and pull[1.5] < 1e-6 and pull[50.0] == 0


def test_recency_by_hand():
    """Shares 4/7, 2/7, 1/7; gaps 0, sigma and far: the price is 2/7 (1 - e^-1/2) + 1/7."""
    loss, _ = value_and_gradient(GaussianTrust(strength=1.0), *one(0.0, a1=0.25, a2=10.0))
    assert float(loss) == pytest.approx(2 / 7 * (1 - math.exp(-0.5)) + 1 / 7)


def test_anchors_are_told_apart_by_age_and_not_by_the_order_of_names():
    gaps = {f"a{k}": 0.1 * k for k in range(1, 12)}
    first = value_and_gradient(GaussianTrust(), *one(0.0, **gaps))
    second = value_and_gradient(GaussianTrust(), *one(0.0, **dict(sorted(gaps.items(), reverse=True))))
    close(first, second, atol=0)
    shares = [0.5**k for k in range(12)]
    price = sum(s * (1 - math.exp(-((0.1 * k) ** 2) / (2 * 0.0625))) for k, s in enumerate(shares)) / sum(shares)
    assert float(first[0]) == pytest.approx(0.2 * price)


def test_responsible_anchors_are_the_near_ones():
    far_and_near = one(4.0, a1=0.25)
    _, mixed = value_and_gradient(GaussianTrust(), *far_and_near)
    _, near = value_and_gradient(GaussianTrust(responsible=True), *far_and_near)
    assert float(near) == pytest.approx(0.2 / (0.25 * math.sqrt(math.e))) and float(mixed) == pytest.approx(
        float(near) / 3
    )
    loss, pull = value_and_gradient(GaussianTrust(responsible=True), *one(900.0, a1=-900.0))
    assert float(loss) == pytest.approx(0.2) and float(pull) == 0


@pytest.mark.parametrize("bad", [{"strength": -1.0}, {"sigma": 0.0}, {"decay": 1.5}, {"clip_low": -0.1}])
def test_bad_constants_are_refused(bad):
    with pytest.raises(ValueError, match="GaussianTrust"):
        GaussianTrust(**bad)
