"""MHPO and DISPO: limiting cases, value and gradient."""

import math

import pytest
import torch

from gimbal.objectives import ClippedRatio, ClippedWeight, Reinforce
from gimbal.objectives.surrogates.hazard import HazardModulated
from gimbal.records import TrainBatch

RATIO = torch.tensor([[0.05, 0.5, 1.0, 2.0, 9.0, 0.05, 0.5, 1.0, 2.0, 9.0]], dtype=torch.float64)
ADVANTAGE = torch.tensor([[1.0] * 5 + [-1.0] * 5], dtype=torch.float64)


def both(objective, ratio_NS=RATIO, advantage_NS=ADVANTAGE):
    logprob_NS = torch.full_like(ratio_NS, -1.0).requires_grad_()
    b = TrainBatch(
        mask_NS=torch.ones_like(ratio_NS, dtype=torch.bool),
        proximal_NS=-1.0 - ratio_NS.log(),
        advantage_NS=advantage_NS,
    )
    loss_NS = objective(logprob_NS, b).loss_NS
    return loss_NS.detach(), torch.autograd.grad(loss_NS.sum(), logprob_NS)[0]


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


def test_no_bound_and_no_hazard_is_the_unclipped_surrogate():
    off = HazardModulated(bound=math.inf, scale_up=math.inf, scale_down=math.inf)
    free = ClippedRatio(clip_low=math.inf, clip_high=math.inf)
    for ours, theirs in zip(both(off), both(free), strict=True):
        close(ours, theirs)


def test_at_r_1_the_gradient_is_reinforce_times_0_2651():
    ones = torch.ones_like(RATIO)
    gradient, plain = both(HazardModulated(), ones)[1], both(Reinforce(), ones)[1]
    close(gradient, plain * math.exp(-(math.log(2) ** 1.5 + (math.log(2) / 0.8) ** 2)))
    torch.testing.assert_close(gradient, 0.2651 * plain, atol=1e-4, rtol=0)
    close(both(HazardModulated(normalise=True), ones)[1], plain)


def test_the_gradient_never_exceeds_exp_of_the_bound():
    far = torch.logspace(-8, 8, 400, dtype=torch.float64)[None]
    gradient = both(HazardModulated(), far, torch.ones_like(far))[1]
    assert gradient.abs().max() <= math.exp(1.5) and torch.isfinite(gradient).all()


def test_the_hazard_carries_no_gradient():
    # With it, far shifts would turn the sign of the update.
    assert (both(HazardModulated())[1] * -ADVANTAGE >= 0).all()


@pytest.mark.parametrize("equal", [{}, {"bad_low": 0.3, "bad_high": 2.0}])
def test_equal_bounds_are_cispo(equal):
    for ours, theirs in zip(
        both(ClippedWeight(clip_low=0.3, clip_high=2.0, **equal)),
        both(ClippedWeight(clip_low=0.3, clip_high=2.0)),
        strict=True,
    ):
        close(ours, theirs)


def test_all_bounds_0_are_reinforce_and_none_are_exact_weights():
    zero = ClippedWeight(clip_low=0.0, clip_high=0.0, bad_low=0.0, bad_high=0.0)
    close(both(zero)[1], both(Reinforce())[1])
    exact = ClippedWeight(clip_low=1.0, clip_high=math.inf, bad_low=1.0, bad_high=math.inf)
    close(both(exact)[1], RATIO * both(Reinforce())[1])


def test_bounds_of_wrong_answers_leave_right_ones_alone():
    gradient = both(ClippedWeight(clip_low=0.2, clip_high=1.0, bad_low=1.0, bad_high=4.0))[1]
    close(-gradient[0, :5], torch.tensor([0.8, 0.8, 1.0, 2.0, 2.0], dtype=torch.float64))
    close(gradient[0, 5:], torch.tensor([0.05, 0.5, 1.0, 2.0, 5.0], dtype=torch.float64))
