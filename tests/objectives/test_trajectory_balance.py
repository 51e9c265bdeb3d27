"""TrajectoryBalance and FlowBalance: by hand, against the gradient of the KL-regularised return, and to their minimum from old data."""

import dataclasses
from itertools import product

import pytest
import torch

from gimbal.advantages import GroupCentered, KLReward
from gimbal.objectives import AdvantageRegression, FlowBalance, Reinforce, TrajectoryBalance
from gimbal.ops import SequenceSum
from gimbal.records import TrainBatch

# A tree: the first decision is 0, 1, or 2, which ends it; the second, behind 0 or 1, is 0 or 1.
LEAVES = ((0, 0), (0, 1), (1, 0), (1, 1), (2,))
RETURN = torch.tensor([1.0, 0.2, 0.0, 0.6, 0.4], dtype=torch.float64)
BETA = 0.3


def batch(returns=(1.0, 0.0, 2.0, 3.0), groups=(5, 5, 2, 2), seed=0):
    g = torch.Generator().manual_seed(seed)
    n, s = len(returns), 4
    logprob_NS = -torch.randn(n, s, generator=g, dtype=torch.float64).abs()
    reward_NS = torch.zeros(n, s, dtype=torch.float64)
    reward_NS[:, 0] = torch.tensor(returns)
    b = TrainBatch(
        mask_NS=torch.arange(s) < torch.tensor([4, 2, 3, 1] * n)[:n, None],
        proximal_NS=logprob_NS.clone(),
        reference_NS=logprob_NS + 0.5 * torch.randn(n, s, generator=g, dtype=torch.float64),
        reward_NS=reward_NS,
        group_N=torch.tensor(groups),
    )
    return logprob_NS, dataclasses.replace(b, advantage_NS=GroupCentered()(b))


def loss_of(objective, logprob_NS, b):
    x = logprob_NS if logprob_NS.requires_grad else logprob_NS.clone().requires_grad_()
    loss = (objective(x, b).loss_NS * SequenceSum()(b.mask_NS)).sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-6)


def table(seed):
    """Logits of the root and of the two states behind it."""
    return torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def logprobs(logits_33):
    """[leaves, 2]: of each decision; 0 where there is none."""
    first_3, second_22 = logits_33[0].log_softmax(-1), logits_33[1:, :2].log_softmax(-1)
    rows = [
        torch.stack([first_3[leaf[0]], second_22[leaf] if len(leaf) == 2 else first_3.new_zeros(())]) for leaf in LEAVES
    ]
    return torch.stack(rows)


def drawn(places, reference_33, groups):
    """A batch of these leaves."""
    places = torch.tensor(places)
    return TrainBatch(
        mask_NS=torch.tensor([[True, len(leaf) == 2] for leaf in LEAVES])[places],
        reference_NS=logprobs(reference_33)[places],
        reward_NS=torch.stack([RETURN, torch.zeros(5)], -1).double()[places],
        group_N=torch.tensor(groups),
    )


def test_two_rows_by_hand():
    b = TrainBatch(
        mask_NS=torch.tensor([[True, True], [True, False]]),
        reference_NS=torch.tensor([[-1.0, -1.0], [-2.0, 0.0]]),
        reward_NS=torch.tensor([[0.0, 1.0], [0.5, 0.0]]),
        group_N=torch.tensor([4, 4]),
    )
    # h = (.5, .2), R / beta = (2, 1), log Z = ((2 - .5) + (1 - .2)) / 2 = 1.15, residuals -.35 and .35; beta / 2 = .25
    loss, gradient = loss_of(TrajectoryBalance(beta=0.5), torch.tensor([[-0.5, -1.0], [-1.8, 0.0]]), b)
    assert loss.item() == pytest.approx(0.25 * 0.35**2)
    # beta x residual x 1 / N, spread over the row's log-probabilities by their sum
    torch.testing.assert_close(gradient, torch.tensor([[-0.0875, -0.0875], [0.0875, 0.0]]))
    # Without a reference h = (-1.5, -1.8): log Z = ((2 + 1.5) + (1 + 1.8)) / 2 = 3.15, residuals -.35 and .35 again
    loss, gradient = loss_of(FlowBalance(beta=0.5), torch.tensor([[-0.5, -1.0], [-1.8, 0.0]]), b)
    assert loss.item() == pytest.approx(0.25 * 0.35**2)
    terms = FlowBalance(beta=0.5)(torch.tensor([[-0.5, -1.0], [-1.8, 0.0]]), b)
    assert terms.metrics["balance/log_z"][1, 0].item() == pytest.approx(3.15)


def test_at_the_reference_the_gradient_is_that_of_reinforce_with_group_centered():
    logprob_NS, b = batch()
    b = dataclasses.replace(b, reference_NS=logprob_NS.clone())
    close(loss_of(TrajectoryBalance(beta=BETA), logprob_NS, b)[1], loss_of(Reinforce(), logprob_NS, b)[1])


def test_before_the_only_update_it_is_reinforce_with_the_kl_in_the_reward():
    logprob_NS, b = batch()
    paid = dataclasses.replace(b, reward_NS=KLReward(coef=BETA)(b))
    paid = dataclasses.replace(paid, advantage_NS=GroupCentered()(paid))
    close(loss_of(TrajectoryBalance(beta=BETA), logprob_NS, b)[1], loss_of(Reinforce(), logprob_NS, paid)[1])


def test_it_is_free_advantage_regression_on_centred_returns():
    logprob_NS, b = batch()
    loss, gradient = loss_of(TrajectoryBalance(beta=BETA), logprob_NS, b)
    other, its = loss_of(AdvantageRegression(beta=BETA, free=True), logprob_NS, b)
    close(loss, other / BETA)
    close(gradient, its / BETA)


def test_equal_returns_make_the_reference_the_minimum_and_one_row_is_no_group():
    logprob_NS, b = batch(returns=(1.0, 1.0, 2.0, 2.0))
    assert loss_of(TrajectoryBalance(), logprob_NS, b)[0] > 0
    loss, gradient = loss_of(TrajectoryBalance(), b.reference_NS, b)
    close(loss, torch.zeros_like(loss))
    close(gradient, torch.zeros_like(gradient))
    logprob_NS, b = batch(groups=(0, 1, 2, 3))
    for objective in (TrajectoryBalance(), FlowBalance()):
        loss, gradient = loss_of(objective, logprob_NS, b)
        close(loss, torch.zeros_like(loss))
        close(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("objective", [TrajectoryBalance(), FlowBalance()])
def test_a_row_without_decisions_is_not_there(objective):
    logprob_NS, b = batch(groups=(5, 5, 5, 5))
    gone = dataclasses.replace(b, mask_NS=b.mask_NS & (torch.arange(4) != 1)[:, None])
    rest = torch.tensor([0, 2, 3])
    close(loss_of(objective, logprob_NS, gone)[0], loss_of(objective, logprob_NS[rest], b.select(rest))[0])


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("objective", [TrajectoryBalance(beta=BETA), FlowBalance(beta=BETA)])
def test_on_policy_it_is_in_expectation_the_gradient_of_the_regularised_return(objective, size):
    """All groups of the tree, each by its probability: 1 - 1 / G of the gradient of beta KL - E R, or of -beta H - E R."""
    logits_33, reference_33 = table(1).requires_grad_(), table(2)
    probability_L = logprobs(logits_33).sum(-1).exp().detach()
    expected = torch.zeros(())
    for places in product(range(5), repeat=size):
        b = drawn(places, reference_33, [0] * size)
        loss_NS = objective(logprobs(logits_33)[list(places)], b).loss_NS
        expected = expected + probability_L[list(places)].prod() * (loss_NS * SequenceSum()(b.mask_NS)).sum()
    ours = torch.autograd.grad(expected, logits_33)[0]
    log_L = logprobs(logits_33).sum(-1)
    against_L = logprobs(reference_33).sum(-1) if isinstance(objective, TrajectoryBalance) else torch.zeros(5)
    whole = (log_L.exp() * (BETA * (log_L - against_L) - RETURN)).sum()
    close(ours, (1 - 1 / size) * torch.autograd.grad(whole, logits_33)[0])


@pytest.mark.parametrize("objective", [TrajectoryBalance(beta=BETA), FlowBalance(beta=BETA)])
def test_from_data_of_another_policy_it_reaches_the_tilted_distribution(objective):
    """Groups of 8 from two policies that never change: in total variation to 1e-3, where returns alone lead far off."""
    reference_33, old = table(2), [table(3), table(4)]
    against_L = logprobs(reference_33).sum(-1) if isinstance(objective, TrajectoryBalance) else torch.zeros(5)
    target_L = (against_L + RETURN / BETA).softmax(-1)
    g = torch.Generator().manual_seed(0)

    def learned(part):
        logits_33 = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([logits_33], lr=0.03)
        for step in range(600):
            behavior_L = logprobs(old[step % 2]).sum(-1).exp()
            places = torch.multinomial(behavior_L, 32, replacement=True, generator=g).tolist()
            b = drawn(places, reference_33, [row // 8 for row in range(32)])
            b = dataclasses.replace(b, advantage_NS=GroupCentered()(b))
            loss = (part(logprobs(logits_33)[places], b).loss_NS * SequenceSum()(b.mask_NS)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return logprobs(logits_33.detach()).sum(-1).exp()

    assert (learned(objective) - target_L).abs().sum() / 2 < 1e-3
    assert (learned(Reinforce()) - target_L).abs().sum() / 2 > 0.05


def test_rows_that_split_off_are_refused():
    logprob_NS, b = batch()
    with pytest.raises(ValueError, match="without branches"):
        TrajectoryBalance()(logprob_NS, dataclasses.replace(b, fork_N=torch.tensor([0, 1, 0, 0])))


@pytest.mark.parametrize("kind", [TrajectoryBalance, FlowBalance])
def test_refusal(kind):
    for beta in (0.0, -1.0, float("nan"), float("inf"), 1e-300):
        with pytest.raises(ValueError, match=f"{kind.__name__}.beta.*from 1e-9 to 1e9"):
            kind(beta=beta)
