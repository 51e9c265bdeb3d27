"""A guide's decisions beside the policy's own: by hand, gradients, limits."""

import dataclasses
import math
from dataclasses import replace

import pytest
import torch

from gimbal import ops
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.objectives.surrogates.guided_ratio import GuidedRatio
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.records import TrainBatch

LOGPROB = torch.tensor([[0.5, 0.9, 0.1, 0.2], [0.3, 0.4, 0.6, 0.7], [0.2, 0.8, 0.5, 0.5]], dtype=torch.float64).log()


def batch(*guided):
    mask_NS = torch.tensor([[True] * 4, [True, False, True, False], [True, True, True, False]])
    b = TrainBatch(
        mask_NS=mask_NS,
        proximal_NS=LOGPROB - 0.4 * torch.tensor([1.0, -1, 1, -1], dtype=torch.float64),
        advantage_NS=torch.tensor([[1.5], [-0.5], [2.0]], dtype=torch.float64) * mask_NS,
    )
    return replace(b, facts={"score/guided": torch.tensor(guided)}) if guided else b


def value_and_gradient(objective, b, x=LOGPROB):
    x = x.clone().requires_grad_()
    loss_NS = objective(x, b).loss_NS
    (gradient,) = torch.autograd.grad((loss_NS * ops.TokenMean()(b.mask_NS)).sum(), x)
    return loss_NS.detach(), gradient


def same(first, second):
    for one, two in zip(first, second, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=0)


def test_by_hand():
    loss, gradient = value_and_gradient(GuidedRatio(), batch(2.0, 0.0, 0.0))
    host, host_gradient = value_and_gradient(ClippedRatio(), batch())
    expected, expected_gradient = host.clone(), host_gradient.clone()
    for s, p in ((2, 0.1), (3, 0.2)):
        expected[0, s] = -1.5 * p / (p + 0.1)
        expected_gradient[0, s] = -1.5 * 0.1 * p / (p + 0.1) ** 2 / 9
    same((loss, gradient), (expected, expected_gradient))
    terms = GuidedRatio()(LOGPROB, batch(2.0, 0.0, 0.0))
    assert terms.metrics["guided_frac"].sum() == 2 and terms.metrics["kl/old"][0, 2:].sum() == 0


def test_the_last_decisions_are_counted_with_what_is_masked_between_them():
    guided = GuidedRatio()(LOGPROB, batch(0.0, 2.0, 1.0)).metrics["guided_frac"]
    assert guided.tolist() == [[0] * 4, [0, 0, 1, 0], [0, 0, 1, 0]]  # row 1 ends at its third decision


@pytest.mark.parametrize("form", ["shaped", "likelihood"])
def test_reduces_to_clipped_ratio_without_repairs(form):
    host = value_and_gradient(ClippedRatio(), batch())
    same(value_and_gradient(GuidedRatio(form=form), batch()), host)
    same(value_and_gradient(GuidedRatio(form=form), batch(0.0, 0.0, 0.0)), host)


def test_reduces_to_shaped_imitation_where_all_is_guided():
    b = batch(4.0, 4.0, 4.0)
    p = LOGPROB.exp()
    a = b.advantage_NS
    expected = -a * p / (p + 0.1), -a * 0.1 * p / (p + 0.1) ** 2 / 9
    same(value_and_gradient(GuidedRatio(), b), expected)


def test_reduces_to_likelihood_where_all_is_guided():
    b = batch(4.0, 4.0, 4.0)
    ours, plain = (value_and_gradient(x, b) for x in (GuidedRatio(form="likelihood"), Likelihood()))
    same([x * b.mask_NS for x in ours], [x * b.mask_NS for x in plain])
    half = value_and_gradient(GuidedRatio(form="likelihood", strength=0.5), b)
    same([x * b.mask_NS for x in half], [x * b.mask_NS / 2 for x in plain])


def test_far_off_policy_stays_finite_and_small():
    b = batch(4.0, 4.0, 4.0)
    loss, gradient = value_and_gradient(GuidedRatio(), b, LOGPROB - 1000)
    assert torch.isfinite(loss).all() and (gradient.abs() < 1e-9).all()
    b = dataclasses.replace(b, mask_NS=torch.zeros_like(b.mask_NS))
    assert (value_and_gradient(GuidedRatio(), b)[0] == 0).all()


def test_the_pull_is_strongest_where_the_probability_is_the_shape():
    x = torch.tensor([[0.05, 0.1, 0.2, 0.9]], dtype=torch.float64).log()
    b = TrainBatch(
        mask_NS=x < 0, proximal_NS=x, advantage_NS=torch.ones_like(x), facts={"score/guided": torch.tensor([4.0])}
    )
    gradient = value_and_gradient(GuidedRatio(), b, x)[1]
    assert gradient.argmin() == 1 and gradient[0, 1].item() == pytest.approx(-0.25 / 4)
    assert math.isclose(gradient[0, 0].item(), gradient[0, 2].item())  # alike at half and at twice the shape


def test_unfit_options_are_refused():
    for options in ({"shape": 0.0}, {"strength": -1.0}, {"clip_low": -0.1}):
        with pytest.raises(ValueError, match="0"):
            GuidedRatio(**options)
