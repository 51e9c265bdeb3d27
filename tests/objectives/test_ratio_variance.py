"""R2VPO and MiniRL: limiting cases, value and gradient."""

import math

import pytest
import torch

from gimbal.controllers import Lagrangian
from gimbal.objectives import ClippedRatio, Reinforce
from gimbal.objectives.surrogates.ratio_variance import RatioVariance
from gimbal.objectives.surrogates.total_ratio_weight import TotalRatioWeight
from gimbal.records import TrainBatch

RATIO = torch.tensor([[0.5, 0.9, 1.0, 1.3, 2.0, 0.5]], dtype=torch.float64)
ADVANTAGE = torch.tensor([[1.0, -1.0, 2.0, 1.0, -0.5, -1.0]], dtype=torch.float64)


def both(objective, ratio_NS=RATIO, discrepancy_NS=None):
    """Loss by decision and its gradient; proximal / behavior is ``discrepancy_NS``."""
    logprob_NS = torch.full_like(ratio_NS, -1.0).requires_grad_()
    proximal_NS = -1.0 - ratio_NS.log()
    behavior_NS = proximal_NS if discrepancy_NS is None else proximal_NS - discrepancy_NS.log()
    b = TrainBatch(
        mask_NS=torch.ones_like(ratio_NS, dtype=torch.bool),
        proximal_NS=proximal_NS,
        behavior_NS=behavior_NS,
        advantage_NS=ADVANTAGE,
    )
    loss_NS = objective(logprob_NS, b).loss_NS
    return loss_NS.detach(), torch.autograd.grad(loss_NS.sum(), logprob_NS)[0]


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_strength_0_is_the_unclipped_surrogate():
    free = ClippedRatio(clip_low=math.inf, clip_high=math.inf)
    for ours, theirs in zip(both(RatioVariance(strength=0.0)), both(free), strict=True):
        close(ours, theirs)


def test_at_r_1_it_is_the_policy_gradient_and_the_price_is_silent():
    ones = torch.ones_like(RATIO)
    loss, gradient = both(RatioVariance(strength=7.0), ones)
    close(loss, -ADVANTAGE)
    close(gradient, both(Reinforce(), ones)[1])


def test_fixed_strength_is_a_chi_square_penalty_at_rest_where_it_should_be():
    loss, gradient = both(RatioVariance(strength=2.0))
    close(loss, -RATIO * ADVANTAGE + 2 * (RATIO - 1).square())
    close(gradient, -RATIO * (ADVANTAGE - 4 * (RATIO - 1)))
    rest = 1 + ADVANTAGE / 4
    close(both(RatioVariance(strength=2.0), rest)[1], torch.zeros_like(rest))


def test_kl_is_half_the_variance_to_second_order():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(9, generator=g, dtype=torch.float64)
    direction = torch.randn(9, generator=g, dtype=torch.float64)
    p = logits.softmax(-1)
    errors = []
    for size in (1e-2, 5e-3):
        q = (logits + size * direction).softmax(-1)
        variance = (p * (q / p - 1).square()).sum()
        errors.append(float(((p * (p / q).log()).sum() / (variance / 2) - 1).abs()))
    assert errors[0] < 0.02 and errors[1] < 0.6 * errors[0]


def test_centred_takes_the_variance_about_the_mean_ratio():
    b = TrainBatch(
        mask_NS=torch.ones(1, 6, dtype=torch.bool), current_NS=RATIO.log() - 1, proximal_NS=torch.full((1, 6), -1.0)
    )
    close(RatioVariance(centred=True).survey(b)["ratio/centre"], RATIO.mean(-1))


def test_an_infinite_limit_lets_the_multiplier_go_to_0():
    rule = Lagrangian(signal="ratio/variance", limit=math.inf, initial=1.0)
    assert rule.update(rule.init(), {"ratio/variance": 3.0})["value"] == 0.0


def test_equal_engines_and_no_update_are_reinforce():
    ones = torch.ones_like(RATIO)
    for ours, theirs in zip(both(TotalRatioWeight(), ones, ones), both(Reinforce(), ones), strict=True):
        close(ours, theirs)


def test_one_update_a_batch_is_the_importance_weight_alone():
    ones = torch.ones_like(RATIO)
    gap = torch.tensor([[0.2, 0.9, 1.0, 3.0, 9.0, 50.0]], dtype=torch.float64)
    close(both(TotalRatioWeight(), ones, gap)[1], -ADVANTAGE * gap.clamp(max=5.0))


def test_the_mask_is_the_one_of_the_clip():
    kept = both(TotalRatioWeight(), RATIO, torch.ones_like(RATIO))[1] != 0
    assert kept.tolist() == (both(ClippedRatio(clip_low=0.2, clip_high=0.27))[1] != 0).tolist()


def test_the_sequence_ratio_is_left_out_quadratically():
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(1, 12, generator=g, dtype=torch.float64)
    errors = []
    for size in (1e-2, 5e-3):
        d = (size * noise).expm1()
        errors.append(float(((1 + d).prod() - 1 - d.sum()).abs()))
    assert 3.5 < errors[0] / errors[1] < 4.5


def test_by_hand():
    close(both(RatioVariance(strength=0.5))[0][0, 4:], torch.tensor([1.0 + 0.5, 0.5 + 0.125], dtype=torch.float64))
    gap = torch.tensor([[1.0, 2.0, 1.0, 1.0, 4.0, 2.0]], dtype=torch.float64)
    # rho = .5, 1.8, 1, masked (good, r = 1.3), 8 at most 5, masked (bad, r = .5); the gradient is -rho A
    expected = torch.tensor([[-0.5, 1.8, -2.0, 0.0, 2.5, 0.0]], dtype=torch.float64)
    close(both(TotalRatioWeight(), RATIO, gap)[1], expected)


def test_numbers_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="0 or above"):
        RatioVariance(strength=-1.0)
    with pytest.raises(ValueError, match="at least 1"):
        TotalRatioWeight(cap=0.5)
