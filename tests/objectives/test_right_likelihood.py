"""The anchor on right answers: its mean, its limits, its gradient."""

import dataclasses

import torch

from gimbal import ops
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.records import TrainBatch


def batch(returns):
    mask_NS = torch.arange(3) < torch.tensor([3, 1, 2])[:, None]
    reward_NS = torch.tensor(returns, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0, 0])
    logprob_NS = -torch.arange(1, 10, dtype=torch.float64).reshape(3, 3)
    return logprob_NS, TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS)


def loss_and_gradient(part, logprob_NS, b):
    x = logprob_NS.clone().requires_grad_()
    loss = (part(x, b).loss_NS * ops.TokenMean()(part.counted(b))).sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def test_by_hand():
    """Right: rows of 3 and 2 decisions, -logprob 1, 2, 3 and 7, 8."""
    loss, gradient = loss_and_gradient(RightLikelihood(), *batch([1.0, 0.5, 2.0]))
    torch.testing.assert_close(loss, torch.tensor(0.1 * 21 / 5, dtype=torch.float64))
    torch.testing.assert_close(gradient, torch.tensor([[1.0, 1, 1], [0, 0, 0], [1, 1, 0]]).double() * -0.1 / 5)


def test_reduces_to_likelihood_where_all_is_right():
    logprob_NS, b = batch([1.0, 1, 1])
    for ours, theirs in zip(
        loss_and_gradient(RightLikelihood(coef=1.0), logprob_NS, b),
        loss_and_gradient(Likelihood(), logprob_NS, b),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


def test_nothing_without_right_answers_or_weight():
    for part, returns in ((RightLikelihood(), [0.0, 0, 0]), (RightLikelihood(coef=0.0), [1.0, 1, 1])):
        loss, gradient = loss_and_gradient(part, *batch(returns))
        assert loss == 0 and (gradient == 0).all()


def test_right_by_name():
    _, b = batch([0.0, 0, 0])
    b = dataclasses.replace(b, facts={"score/right": torch.tensor([1.0, 0, 0])})
    assert RightLikelihood(right="right").counted(b).sum() == 3
