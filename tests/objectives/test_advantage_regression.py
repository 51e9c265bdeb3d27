"""AdvantageRegression: the squared pair, the reference, REINFORCE at the reference, and the tilted optimum."""

import dataclasses

import pytest
import torch

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.objectives.surrogates.advantage_regression import AdvantageRegression
from gimbal.objectives.surrogates.reinforce import Reinforce
from gimbal.ops import SequenceSum
from gimbal.records import TrainBatch


def batch(returns=(1.0, 0.0, 2.0, 3.0), groups=(5, 5, 2, 2), seed=0):
    g = torch.Generator().manual_seed(seed)
    n, s = len(returns), 4
    logprob_NS = -torch.randn(n, s, generator=g, dtype=torch.float64).abs()
    reward_NS = torch.zeros(n, s, dtype=torch.float64)
    reward_NS[:, 0] = torch.tensor(returns)
    b = TrainBatch(
        mask_NS=torch.arange(s) < torch.tensor([4, 2, 3, 1] * n)[:n, None],
        reference_NS=logprob_NS + 0.5 * torch.randn(n, s, generator=g, dtype=torch.float64),
        reward_NS=reward_NS,
        group_N=torch.tensor(groups),
    )
    return logprob_NS, dataclasses.replace(b, advantage_NS=GroupCentered()(b))


def loss_of(objective, logprob_NS, b):
    x = logprob_NS.clone().requires_grad_()
    loss = (objective(x, b).loss_NS * SequenceSum()(b.mask_NS)).sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def test_a_golden_row():
    b = TrainBatch(
        mask_NS=torch.tensor([[True, True]]),
        reference_NS=torch.tensor([[-1.0, -1.0]]),
        advantage_NS=torch.tensor([[0.5, 0.5]]),
        group_N=torch.tensor([0]),
    )
    loss, gradient = loss_of(AdvantageRegression(beta=0.2), torch.tensor([[-0.5, -2.0]]), b)
    assert loss.item() == pytest.approx(0.18)  # (.2 * -.5 - .5)^2 / 2
    assert gradient[0].tolist() == pytest.approx([-0.12, -0.12])


def test_two_in_a_group_are_the_squared_pair_of_ipo():
    logprob_NS, b = batch()
    x = logprob_NS.clone().requires_grad_()
    h_N = 0.3 * ((x - b.reference_NS) * b.mask_NS).sum(-1)
    advantage_N = b.advantage_NS[:, 0]
    pairs = h_N[[0, 2]] - h_N[[1, 3]] - (advantage_N[[0, 2]] - advantage_N[[1, 3]])
    expected = (pairs.square() / 8).mean()
    loss, gradient = loss_of(AdvantageRegression(beta=0.3, free=True), logprob_NS, b)
    close(loss, expected.detach())
    close(gradient, torch.autograd.grad(expected, x)[0])
    # Fitted singly, the sum of the two is held at 0 as well.
    whole = expected.detach() + ((h_N[[0, 2]] + h_N[[1, 3]]).square() / 8).mean().detach()
    close(loss_of(AdvantageRegression(beta=0.3), logprob_NS, b)[0], whole)


@pytest.mark.parametrize("free", [False, True])
def test_no_advantage_makes_the_reference_the_minimum(free):
    logprob_NS, b = batch(returns=(1.0, 1.0, 2.0, 2.0))
    away = loss_of(AdvantageRegression(free=free), logprob_NS, b)[0]
    loss, gradient = loss_of(AdvantageRegression(free=free), b.reference_NS, b)
    assert away > 0 and loss == 0 and (gradient == 0).all()


@pytest.mark.parametrize("free", [False, True])
def test_at_the_reference_the_gradient_is_that_of_reinforce(free):
    logprob_NS, b = batch()
    b = dataclasses.replace(b, reference_NS=logprob_NS.clone())
    gradient = loss_of(AdvantageRegression(beta=0.3, free=free), logprob_NS, b)[1]
    close(gradient, 0.3 * loss_of(Reinforce(), logprob_NS, b)[1])


@pytest.mark.parametrize("free", [False, True])
def test_a_lone_row_and_an_empty_one(free):
    logprob_NS, b = batch(groups=(0, 1, 2, 3))
    if free:
        assert loss_of(AdvantageRegression(free=True), logprob_NS, b)[0] == 0
    logprob_NS, b = batch()
    gone = dataclasses.replace(b, mask_NS=b.mask_NS & (torch.arange(4) != 1)[:, None])
    rest = torch.tensor([0, 2, 3])
    close(
        loss_of(AdvantageRegression(free=free), logprob_NS, gone)[0],
        loss_of(AdvantageRegression(free=free), logprob_NS[rest], b.select(rest))[0],
    )


@pytest.mark.parametrize("free", [False, True])
def test_the_minimum_is_the_tilted_reference(free):
    """reference exp(A / beta) / Z over three actions; unless free the normaliser has to be part of the advantage."""
    reference_A, beta = torch.tensor([0.5, 0.3, 0.2]).double(), 0.5
    advantage_A = torch.tensor([0.0, 0.5, 1.0]).double()
    target_A = (reference_A.log() + advantage_A / beta).softmax(0)
    if not free:
        advantage_A = advantage_A - beta * (reference_A * (advantage_A / beta).exp()).sum().log()
    b = TrainBatch(
        mask_NS=torch.ones(3, 1, dtype=torch.bool),
        reference_NS=reference_A.log()[:, None],
        advantage_NS=advantage_A[:, None],
        group_N=torch.zeros(3, dtype=torch.long),
    )
    score_A = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [score_A], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=0
    )

    def closure():
        optimizer.zero_grad()
        loss = AdvantageRegression(beta=beta, free=free)(score_A.log_softmax(0)[:, None], b).loss_NS.sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    close(score_A.detach().softmax(0), target_A)


def test_refusal():
    with pytest.raises(ValueError, match="beta"):
        AdvantageRegression(beta=0.0)
