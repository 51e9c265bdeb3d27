"""Right answers against wrong ones: the gradient of the equation itself, its limits, and the hinge beside it."""

import dataclasses
import math

import pytest
import torch

from gimbal import ops
from gimbal.objectives.regularisers.kl_hinge import KLHinge
from gimbal.objectives.surrogates.contrastive_likelihood import ContrastiveLikelihood
from gimbal.records import TrainBatch

RIGHT = [1, 1, 0, 0, 0, 1, 1, 1, 0, 1]
GROUP = [0, 0, 0, 0, 5, 5, 5, 8, 9, 9]  # the third group is all right (and alone)
LENGTH = [2, 6, 3, 1, 4, 4, 5, 2, 6, 1]


def batch(right=RIGHT):
    g = torch.Generator().manual_seed(0)
    mask_NS = torch.arange(6) < torch.tensor(LENGTH)[:, None]
    logprob_NS = -torch.randn(10, 6, generator=g, dtype=torch.float64).abs().where(mask_NS, 0)
    reward_NS = torch.zeros(10, 6, dtype=torch.float64)
    reward_NS[:, 0] = torch.tensor(right)
    return logprob_NS, TrainBatch(
        mask_NS=mask_NS, current_NS=logprob_NS.clone(), reward_NS=reward_NS, group_N=torch.tensor(GROUP)
    )


def gradient(objective, logprob_NS, b):
    b = b.with_columns(objective.survey(b))
    x = logprob_NS.clone().requires_grad_()
    (objective(x, b).loss_NS * ops.SequenceMean()(b.mask_NS)).sum().backward()
    return x.grad


def published(logprob_NS, b, strength=0.1, tau=10.0, budget=64, liked=None):
    """-sum of J over the groups that have both, divided by all groups."""
    x = logprob_NS.clone().requires_grad_()
    total = 0.0
    right_N, length_N = b.return_N > 0.5, b.mask_NS.sum(-1)
    s_N = (x * b.mask_NS).sum(-1) / length_N
    for label in b.group_N.unique():
        up, down = (b.group_N == label) & right_N, (b.group_N == label) & ~right_N
        if up.any() and down.any():
            w = torch.exp((1 - length_N[up] / budget if liked is None else liked[up]) / strength)
            mean_exp = (s_N[down] / tau).exp().mean() if math.isfinite(tau) else None
            pushed = tau * mean_exp.log() if mean_exp is not None else s_N[down].mean()
            total = total - (w * s_N[up]).sum() / w.sum() + pushed
    (total / len(b.group_N.unique())).backward()
    return x.grad


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6, check_dtype=False)


@pytest.mark.parametrize("kwargs", [{}, {"strength": 1.0, "tau": 0.3, "budget": 8}])
def test_its_gradient_is_that_of_the_equation(kwargs):
    logprob_NS, b = batch()
    close(gradient(ContrastiveLikelihood(**kwargs), logprob_NS, b), published(logprob_NS, b, **kwargs))


def test_by_hand():
    """Lengths 2 and 6 of 8, strength 1/2: weights e^1.5 and e^0.5; one wrong answer; two groups, of which one counts."""
    mask_NS = torch.arange(6) < torch.tensor([[2], [6], [3], [1]])
    b = TrainBatch(
        mask_NS=mask_NS,
        current_NS=-mask_NS.double(),
        reward_NS=torch.tensor([1.0, 1, 0, 0])[:, None] * (torch.arange(6) == 0),
        group_N=torch.tensor([0, 0, 0, 1]),
    )
    share = 1 / (1 + math.exp(-1))
    c = ContrastiveLikelihood(strength=0.5, budget=8).survey(b)["contrast"]
    close(c, torch.tensor([share, 1 - share, -1, 0]) * 4 / 2)


def test_reduces_to_disco_at_infinite_strength():
    logprob_NS, b = batch()
    uniform = published(logprob_NS, b, liked=torch.zeros(10))
    close(gradient(ContrastiveLikelihood(strength=math.inf), logprob_NS, b), uniform)


def test_reduces_to_the_mean_of_wrong_answers_at_infinite_tau():
    logprob_NS, b = batch()
    close(gradient(ContrastiveLikelihood(tau=math.inf), logprob_NS, b), published(logprob_NS, b, tau=math.inf))


def test_any_preference_among_right_answers():
    logprob_NS, b = batch()
    liked = torch.rand(10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    b = b.with_columns({"score/form": liked, "score/right": torch.tensor(RIGHT)})
    by_name = ContrastiveLikelihood(preference="form", right="right")
    close(gradient(by_name, logprob_NS, b), published(logprob_NS, b, liked=liked))


def test_no_right_answer_is_pushed_down_and_long_ones_less_up():
    _, b = batch()
    c = ContrastiveLikelihood().survey(b)["contrast"]
    assert (c[b.return_N > 0.5] >= 0).all() and (c[b.return_N < 0.5] <= 0).all()
    assert c[0] > c[1] > 0


@pytest.mark.parametrize("right", [[1] * 10, [0] * 10])
def test_groups_of_one_kind_teach_nothing(right):
    logprob_NS, b = batch(right)
    assert (gradient(ContrastiveLikelihood(), logprob_NS, b) == 0).all()


def test_a_row_without_decisions_is_neither_right_nor_wrong():
    _, b = batch()
    b = dataclasses.replace(b, mask_NS=b.mask_NS & (torch.arange(10) != 5)[:, None])
    alone = ContrastiveLikelihood().survey(b)["contrast"]
    assert alone[5] == 0 and torch.isfinite(alone).all()


def hinge(gap, **kwargs):
    lp = torch.full((2, 2), -1.0, dtype=torch.float64)
    b = TrainBatch(mask_NS=torch.tensor([[True, True], [True, False]]), proximal_NS=lp + gap, current_NS=lp)
    part = KLHinge(**kwargs)
    b = b.with_columns(part.survey(b))
    x = lp.clone().requires_grad_()
    loss = (part(x, b).loss_NS * ops.TokenMean()(b.mask_NS)).sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def test_the_hinge_is_off_within_its_limit():
    for gap in (0.0, 1e-4, -5.0):
        loss, grad = hinge(gap)
        assert loss == 0 and (grad == 0).all()


def test_the_hinge_has_the_gradient_of_half_the_square():
    loss, grad = hinge(0.3, coef=2.0, limit=0.1)
    close(loss, torch.tensor(2 * 0.2 * 0.3))
    close(grad, torch.tensor([[-1.0, -1.0], [-1.0, 0.0]]) * 2 * 0.2 / 3)
    assert (hinge(0.3, coef=0.0)[1] == 0).all()


def test_bounds_are_refused():
    with pytest.raises(ValueError, match="above 0"):
        ContrastiveLikelihood(tau=0.0)
