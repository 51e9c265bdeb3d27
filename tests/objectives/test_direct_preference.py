"""DirectPreference: the published pair loss, its gradient at the reference, and what it recovers."""

import dataclasses
import math

import pytest
import torch
from torch.nn.functional import logsigmoid

from gimbal.objectives.surrogates.direct_preference import DirectPreference
from gimbal.ops import SequenceSum, TokenMean
from gimbal.records import TrainBatch


def batch(returns=(1.0, 0.0, 2.0, 3.0), groups=(5, 5, 2, 2), seed=0):
    g = torch.Generator().manual_seed(seed)
    n, s = len(returns), 4
    logprob_NS = -torch.randn(n, s, generator=g, dtype=torch.float64).abs()
    mask_NS = torch.arange(s) < torch.tensor([4, 2, 3, 1] * n)[:n, None]
    reward_NS = torch.zeros(n, s, dtype=torch.float64)
    reward_NS[:, 0] = torch.tensor(returns)
    reference_NS = logprob_NS + 0.5 * torch.randn(n, s, generator=g, dtype=torch.float64)
    return logprob_NS, TrainBatch(
        mask_NS=mask_NS, reference_NS=reference_NS, reward_NS=reward_NS, group_N=torch.tensor(groups)
    )


def loss_of(objective, logprob_NS, b):
    x = logprob_NS.clone().requires_grad_()
    loss = (objective(x, b).loss_NS * SequenceSum()(b.mask_NS)).sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_at_the_reference_the_loss_is_log_2_and_the_gradient_half_beta(smoothing):
    logprob_NS, b = batch()
    b = dataclasses.replace(b, reference_NS=logprob_NS.clone())
    loss, gradient = loss_of(DirectPreference(beta=0.3, smoothing=smoothing), logprob_NS, b)
    close(loss, torch.tensor(math.log(2)).double())
    sign_N = torch.tensor([-1.0, 1.0, 1.0, -1.0]).double()
    close(gradient, (1 - 2 * smoothing) * 0.15 / 2 * sign_N[:, None] * b.mask_NS)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_groups_of_two_are_the_published_loss(smoothing):
    logprob_NS, b = batch()
    x = logprob_NS.clone().requires_grad_()
    s_N = ((x - b.reference_NS) * b.mask_NS).sum(-1)
    u_P = 0.7 * (s_N[[0, 3]] - s_N[[1, 2]])
    expected = (-(1 - smoothing) * logsigmoid(u_P) - smoothing * logsigmoid(-u_P)).mean()
    loss, gradient = loss_of(DirectPreference(beta=0.7, smoothing=smoothing), logprob_NS, b)
    close(loss, expected.detach())
    close(gradient, torch.autograd.grad(expected, x)[0])


def test_a_golden_pair():
    b = TrainBatch(
        mask_NS=torch.tensor([[True], [True]]),
        reference_NS=torch.tensor([[-2.0], [-1.0]]),
        reward_NS=torch.tensor([[1.0], [0.0]]),
        group_N=torch.tensor([0, 0]),
    )
    loss, gradient = loss_of(DirectPreference(beta=0.5), torch.tensor([[-1.0], [-3.0]]), b)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-1.5)))  # u = .5 (1 - -2)
    assert gradient[0, 0].item() == pytest.approx(-0.5 / (1 + math.exp(1.5)))


def test_larger_groups_are_the_mean_over_all_ordered_pairs():
    logprob_NS, b = batch(returns=(0.0, 2.0, 1.0, 1.0), groups=(3, 3, 3, 3))
    s_N = ((logprob_NS - b.reference_NS) * b.mask_NS).sum(-1)
    pairs = [(1, 0), (2, 0), (3, 0), (1, 2), (1, 3)]
    expected = -sum(logsigmoid(0.1 * (s_N[i] - s_N[j])) for i, j in pairs) / 5
    close(loss_of(DirectPreference(), logprob_NS, b)[0], expected)


@pytest.mark.parametrize(("returns", "groups"), [((1.0, 1.0), (0, 0)), ((1.0, 0.0), (0, 1))])
def test_equal_returns_and_lone_answers_are_no_pair(returns, groups):
    loss, gradient = loss_of(DirectPreference(), *batch(returns, groups))
    assert loss == 0 and (gradient == 0).all()


def test_an_answer_without_decisions_is_in_no_pair():
    logprob_NS, b = batch()
    gone = dataclasses.replace(b, mask_NS=b.mask_NS & (torch.arange(4) != 1)[:, None])
    rest = torch.tensor([0, 2, 3])
    close(
        loss_of(DirectPreference(), logprob_NS, gone)[0],
        loss_of(DirectPreference(), logprob_NS[rest], b.select(rest))[0],
    )


def test_the_tilted_reference_is_recovered_from_bradley_terry_labels():
    """pi_ref exp(r / beta) / Z: pairs are drawn uniformly and labelled by a coin of odds exp(r_i - r_j)."""
    g = torch.Generator().manual_seed(1)
    reward_A, beta = torch.tensor([0.0, 0.5, 1.0]).double(), 0.5
    reference_A = torch.tensor([0.5, 0.3, 0.2]).double()
    arm_P2 = torch.randint(3, (20_000, 2), generator=g)
    wins_P = torch.rand(20_000, generator=g).double() < torch.sigmoid(reward_A[arm_P2[:, 0]] - reward_A[arm_P2[:, 1]])
    score_A = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    # Each ordered pair of arms stands once, weighted by how often its first arm won.
    count_AA = torch.zeros(3, 3).double()
    winner_P = torch.where(wins_P, arm_P2[:, 0], arm_P2[:, 1])
    count_AA.index_put_((winner_P, arm_P2.sum(1) - winner_P), torch.ones(20_000).double(), accumulate=True)
    kinds = [(i, j) for i in range(3) for j in range(3) if i != j]
    arm_N = torch.tensor(kinds).flatten()
    b = TrainBatch(
        mask_NS=torch.ones(12, 1, dtype=torch.bool),
        reference_NS=reference_A.log()[arm_N][:, None],
        reward_NS=torch.tensor([1.0, 0.0] * 6).double()[:, None],
        group_N=torch.arange(6).repeat_interleave(2),
    )
    weight_N = torch.tensor([count_AA[i, j] for i, j in kinds]).repeat_interleave(2) / 20_000
    optimizer = torch.optim.LBFGS([score_A], max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss_NS = DirectPreference(beta=beta)(score_A.log_softmax(0)[arm_N][:, None], b).loss_NS
        loss = (loss_NS[:, 0] * weight_N).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    target_A = (reference_A.log() + reward_A / beta).softmax(0)
    torch.testing.assert_close(score_A.detach().softmax(0), target_A, atol=0.02, rtol=0)


@pytest.mark.parametrize("wrong", [{"beta": 0.0}, {"smoothing": 0.6}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="beta above 0"):
        DirectPreference(**wrong)


@pytest.mark.parametrize("seed", range(4))
def test_the_accuracy_is_a_share_of_pairs_whatever_the_lengths_of_rows(seed):
    logprob_NS, b = batch(returns=(0.0, 2.0, 1.0, 1.0, 3.0, 3.0, 5.0), groups=(3, 3, 3, 3, 4, 4, 9), seed=seed)
    s_N = ((logprob_NS - b.reference_NS) * b.mask_NS).sum(-1)
    pairs = [(1, 0), (2, 0), (3, 0), (1, 2), (1, 3)]
    accuracy_NS = DirectPreference()(logprob_NS, b).metrics["pair/accuracy"]
    found = (TokenMean()(b.mask_NS) * accuracy_NS).sum()
    close(found.double(), torch.tensor([float(s_N[i] > s_N[j]) for i, j in pairs]).double().mean())


def test_pairs_on_which_the_policy_agrees_with_the_reference_up_to_rounding_are_ties():
    logprob_NS, b = batch()
    b = dataclasses.replace(b, reference_NS=logprob_NS * (1 + 1e-7))
    accuracy_NS = DirectPreference()(logprob_NS, b).metrics["pair/accuracy"]
    assert (TokenMean()(b.mask_NS) * accuracy_NS).sum() == pytest.approx(0.5)
