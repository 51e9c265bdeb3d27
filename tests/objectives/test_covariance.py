"""Clip-Cov and KL-Cov: which decisions they choose, what they do to them, and the theory of why."""

import dataclasses
import math

import pytest
import torch

from gimbal import ops
from gimbal.objectives import ClippedRatio, Reinforce
from gimbal.objectives.masks.covariance_mask import CovarianceMask, covariance
from gimbal.objectives.surrogates.covariance_kl import CovarianceKL
from gimbal.ops.lots import lots
from gimbal.records import TrainBatch

FREE = ClippedRatio(clip_low=math.inf, clip_high=math.inf)


def batch(seed=0, n=6, s=8, gap=0.3):
    g = torch.Generator().manual_seed(seed)

    def draw():
        return torch.randn(n, s, generator=g, dtype=torch.float64)

    current_NS = -2 * draw().abs()
    return TrainBatch(
        mask_NS=torch.arange(s) < torch.tensor([8, 4, 1, 5, 8, 6])[:n, None],
        current_NS=current_NS,
        proximal_NS=current_NS + gap * draw(),
        behavior_NS=current_NS + gap * draw(),
        advantage_NS=2 * draw()[:, :1].expand(n, s).clone(),
    )


def both(objective, b):
    logprob_NS = b.current_NS.clone().requires_grad_()
    loss_NS = objective(logprob_NS, b.with_columns(objective.survey(b))).loss_NS
    return loss_NS.detach(), torch.autograd.grad(loss_NS[b.mask_NS].sum(), logprob_NS)[0]


def alike(first, second, b):
    for ours, theirs in zip(both(first, b), both(second, b), strict=True):
        torch.testing.assert_close(ours[b.mask_NS], theirs[b.mask_NS], atol=1e-6, rtol=1e-6)


def test_covariance_by_hand():
    b = TrainBatch(
        mask_NS=torch.tensor([[True, True], [True, False]]),
        current_NS=torch.tensor([[-1.0, -3.0], [-2.0, float("nan")]]),
        advantage_NS=torch.tensor([[2.0, 2.0], [-1.0, float("inf")]]),
    )
    expected = torch.tensor([[1.0, -1.0], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(covariance(b, b), expected)


def test_entropy_falls_by_the_covariance():
    """A natural-gradient step of size eta on a softmax: the change of entropy over -eta Cov(log pi, A) goes to 1."""
    count = torch.tensor([1, 2, 5, 8])
    logit, advantage = (count / 16).double().log(), torch.tensor([1.0, -2.0, 0.5, 0.3], dtype=torch.float64)
    chosen = torch.arange(4).repeat_interleave(count)[None]
    b = TrainBatch(
        mask_NS=torch.ones_like(chosen, dtype=torch.bool), current_NS=logit[chosen], advantage_NS=advantage[chosen]
    )
    predicted = covariance(b, b).mean()

    def entropy(z):
        return -(z.softmax(0) * z.log_softmax(0)).sum()

    for eta, error in ((1e-2, 2e-2), (1e-4, 2e-4)):
        measured = entropy(logit + eta * advantage) - entropy(logit)
        assert abs(float(measured / (-eta * predicted)) - 1) < error


@pytest.mark.parametrize("band", [{"share": 0.0}, {"share": 1.0, "low": 1e6, "high": 1e7}])
def test_no_candidates_keeps_all(band):
    b = batch()
    assert torch.equal(CovarianceMask(**band)(b), b.mask_NS)


def test_equal_advantages_have_no_covariance():
    b = dataclasses.replace(batch(), advantage_NS=torch.full((6, 8), 0.7, dtype=torch.float64))
    assert (covariance(b, b) == 0).all() and torch.equal(CovarianceMask(share=1.0, low=0.0)(b), b.mask_NS)


def test_a_full_share_drops_the_band_except_what_is_clipped():
    b = batch()
    c, ratio_NS = covariance(b, b), (b.current_NS - b.proximal_NS).exp()
    clipped_NS = ((b.advantage_NS > 0) & (ratio_NS > 1.2)) | ((b.advantage_NS < 0) & (ratio_NS < 0.8))
    band_NS = (c > 0.5) & (c < 3) & b.mask_NS
    assert (band_NS & clipped_NS).any() and (band_NS & ~clipped_NS).any()
    assert torch.equal(CovarianceMask(share=1.0, low=0.5, high=3.0)(b), b.mask_NS & ~(band_NS & ~clipped_NS))
    free = CovarianceMask(share=1.0, low=0.5, high=3.0, clip_low=math.inf, clip_high=math.inf)
    assert torch.equal(free(b), b.mask_NS & ~band_NS)


@pytest.mark.parametrize(("share", "dropped"), [(1e-9, 1), (2.1 / 32, 2), (4 / 32, 4)])
def test_a_share_is_rounded_down_but_is_one_at_least(share, dropped):
    b = batch()
    mask = CovarianceMask(share=share, low=0.0, high=99.0, clip_low=math.inf, clip_high=math.inf)
    assert int((b.mask_NS & ~mask(b)).sum()) == dropped


def test_the_choice_is_random_over_batches_and_fixed_for_one():
    mask = CovarianceMask(share=1e-9, low=0.0, high=99.0)
    b = batch()
    again = dataclasses.replace(b, current_NS=b.current_NS + 1e-9)  # as another split into micro-batches would give
    assert torch.equal(mask(b), mask(again))
    others = {tuple(mask(dataclasses.replace(b, behavior_NS=b.behavior_NS - k))[b.mask_NS].tolist()) for k in range(20)}
    assert len(others) > 5


def test_lots_belong_to_the_row():
    b = batch()
    lot_NS = lots(b.behavior_NS, b.mask_NS, "test")
    assert (lot_NS[~b.mask_NS] == 0).all() and len(lot_NS[b.mask_NS].unique()) == int(b.mask_NS.sum())
    rows = b.select(torch.tensor([3, 1]))
    torch.testing.assert_close(lots(rows.behavior_NS, rows.mask_NS, "test"), lot_NS[[3, 1], : rows.shape[1]])
    assert not torch.equal(lots(b.behavior_NS, b.mask_NS, "other"), lot_NS)


@pytest.mark.parametrize("off", [{"share": 0.0}, {"coef": 0.0}])
def test_off_is_the_unclipped_surrogate(off):
    alike(CovarianceKL(**off), FREE, batch())


def test_at_the_anchor_the_gradient_is_reinforce():
    b = batch(gap=0.0)
    torch.testing.assert_close(both(CovarianceKL(share=1.0), b)[1], both(Reinforce(), b)[1], atol=1e-6, rtol=0)


def test_the_largest_covariances_are_held():
    b = batch()
    found = CovarianceKL(share=3 / 32).survey(b)
    held_NS, c = found["held_NS"] > 0, covariance(b, b)
    assert int(held_NS.sum()) == 3 and c[held_NS].min() > c[b.mask_NS & ~held_NS].max()
    loss, gradient = both(CovarianceKL(share=3 / 32, coef=0.7), b)
    plain, slope = both(FREE, b)
    gap_NS = (b.current_NS - b.proximal_NS) * held_NS
    torch.testing.assert_close((loss - plain)[b.mask_NS], 0.7 * gap_NS.abs()[b.mask_NS])
    torch.testing.assert_close(gradient - slope, 0.7 * gap_NS.sign())


def test_among_equals_the_lot_decides_not_the_row():
    b = batch()
    sure = dataclasses.replace(b, current_NS=torch.zeros_like(b.current_NS), advantage_NS=torch.ones_like(b.current_NS))
    held_NS = CovarianceKL(share=4 / 32).survey(sure)["held_NS"]
    order = torch.tensor([5, 3, 0, 1, 4, 2])
    assert held_NS.sum() == 4 and torch.equal(
        CovarianceKL(share=4 / 32).survey(sure.select(order))["held_NS"], held_NS[order]
    )


def test_everything_masked_and_a_single_decision():
    b = dataclasses.replace(batch(), mask_NS=torch.zeros(6, 8, dtype=torch.bool))
    assert not CovarianceMask(low=0.0)(b).any() and CovarianceKL().survey(b)["held_NS"].sum() == 0
    one = batch().select(torch.tensor([2]))
    assert CovarianceMask()(one).all() and torch.isfinite(both(CovarianceKL(), one)[0]).all()


def test_errors_say_the_way_out():
    with pytest.raises(ValueError, match="0 \\(none\\) to 1"):
        CovarianceKL(share=2.0)
    with pytest.raises(ValueError, match="low may not exceed"):
        CovarianceMask(low=2.0, high=1.0)


def test_covariance_agrees_with_the_sample_covariance():
    b = batch()
    picked = torch.stack([b.current_NS[b.mask_NS], b.advantage_NS[b.mask_NS]])
    torch.testing.assert_close(ops.masked_mean(covariance(b, b), b.mask_NS), torch.cov(picked, correction=0)[0, 1])
