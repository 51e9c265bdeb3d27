"""BAPO: how the bounds are found, and its limiting cases."""

import pytest
import torch

from gimbal.objectives.surrogates.balanced_clip import BalancedClip
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.records import TrainBatch


def at(ratio, advantage):
    ratio_NS = torch.tensor([ratio], dtype=torch.float64)
    logprob_NS = torch.full_like(ratio_NS, -1.0)
    return logprob_NS, TrainBatch(
        mask_NS=torch.ones_like(ratio_NS, dtype=torch.bool),
        proximal_NS=logprob_NS - ratio_NS.log(),
        current_NS=logprob_NS,
        advantage_NS=torch.tensor([advantage], dtype=torch.float64),
    )


def bounds(objective, b):
    facts = objective.survey(b)
    return facts["balanced_clip/low"].item(), facts["balanced_clip/high"].item()


def loss_and_gradient(objective, logprob_NS, b):
    logprob_NS = logprob_NS.clone().requires_grad_()
    loss = objective(logprob_NS, b).loss_NS.sum()
    return loss, torch.autograd.grad(loss, logprob_NS)[0]


def test_equal_first_and_last_bounds_are_the_clipped_ratio():
    ratio = torch.linspace(0.1, 4, 40).tolist()
    logprob_NS, b = at(ratio, [(-1.0) ** i for i in range(40)])
    fixed = BalancedClip(clip_low=0.3, clip_low_end=0.3, clip_high=0.5, clip_high_end=0.5)
    same = ClippedRatio(clip_low=0.3, clip_high=0.5, dual_clip=3.0)
    for ours, theirs in zip(
        loss_and_gradient(fixed, logprob_NS, b), loss_and_gradient(same, logprob_NS, b), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_r_1_everywhere_makes_the_bounds_irrelevant_to_the_value():
    logprob_NS, b = at([1.0] * 4, [1.0, -2.0, 3.0, -4.0])
    loss, gradient = loss_and_gradient(BalancedClip(), logprob_NS, b)
    torch.testing.assert_close(loss, torch.tensor(2.0, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(gradient, -b.advantage_NS, atol=1e-6, rtol=0)


def test_a_target_already_met_keeps_the_first_bounds():
    _, b = at([1.0, 1.0], [2.0, -1.0])
    assert bounds(BalancedClip(), b) == pytest.approx((0.4, 0.2))
    assert bounds(BalancedClip(target=0.0), at([1.0], [-1.0])[1]) == pytest.approx((0.4, 0.2))


def test_the_upper_bound_opens_until_the_share_is_reached():
    # P = min(2, 1 + high), M = 1.5: the share is a half from 1 + high = 1.5 on; the lower bound goes first, and to its end.
    _, b = at([2.0, 1.5], [1.0, -1.0])
    assert bounds(BalancedClip(), b) == pytest.approx((0.2, 0.5))
    assert bounds(BalancedClip(first="high"), b) == pytest.approx((0.4, 0.5))


def test_bounds_end_where_nothing_helps():
    assert bounds(BalancedClip(), at([1.0, 1.0], [-1.0, -2.0])[1]) == pytest.approx((0.2, 1.0))


def test_without_a_survey_the_batch_at_hand_is_the_minibatch():
    logprob_NS, b = at([2.0, 1.5], [1.0, -1.0])
    whole = b.with_columns(BalancedClip().survey(b))
    torch.testing.assert_close(BalancedClip()(logprob_NS, b).loss_NS, BalancedClip()(logprob_NS, whole).loss_NS)


def test_bounds_the_wrong_way_round_are_refused():
    with pytest.raises(ValueError, match="set clip_low >= clip_low_end"):
        BalancedClip(clip_low=0.1)
