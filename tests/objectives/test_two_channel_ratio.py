"""Two clipped surrogates with the same ratios: who qualifies, the limits, and where two are not one."""

import dataclasses
from dataclasses import replace

import pytest
import torch

from gimbal import ops
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.objectives.surrogates.two_channel_ratio import TwoChannelRatio
from gimbal.records import TrainBatch

METHOD = TwoChannelRatio(outcome="right", economy="economy")


def batch(right=(1, 1, 1, 0, 0, 1), economy=(1, 0.5, 0.25, 1, 0.5, 1), group=(0, 0, 0, 0, 4, 4), gap=0.5):
    g = torch.Generator().manual_seed(0)
    n, s = len(right), 4
    logprob_NS = -torch.rand(n, s, generator=g, dtype=torch.float64)
    return logprob_NS, TrainBatch(
        mask_NS=torch.arange(s) < torch.tensor([4, 3, 2, 4, 1, 4])[:, None],
        proximal_NS=logprob_NS + gap * torch.randn(n, s, generator=g, dtype=torch.float64),
        advantage_NS=torch.randn(n, 1, generator=g, dtype=torch.float64).expand(n, s).clone(),
        group_N=torch.tensor(group),
        facts={"score/right": torch.tensor(right).double(), "score/economy": torch.tensor(economy).double()},
    )


def value_and_gradient(objective, logprob_NS, b):
    x = logprob_NS.clone().requires_grad_()
    b = b.with_columns(objective.survey(b))
    loss = (objective(x, b).loss_NS * ops.TokenMean()(b.mask_NS)).sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def same(first, second, logprob_NS, b, other=None):
    for one, two in zip(
        value_and_gradient(first, logprob_NS, b), value_and_gradient(second, logprob_NS, other or b), strict=True
    ):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=0)


def test_the_second_advantage_by_hand():
    _, b = batch()
    e = torch.tensor([1, 0.5, 0.25])
    expected = torch.tensor([*((e - e.mean()) / (e.std() + 1e-6)), 0, 0, 0])  # one right in the second group: 0
    torch.testing.assert_close(METHOD.survey(b)["economy_N"], expected)


def test_economy_0_does_not_qualify():
    _, b = batch(economy=(1, 0.5, 0, 1, 1, 1))
    half = 0.5**0.5
    torch.testing.assert_close(
        METHOD.survey(b)["economy_N"], torch.tensor([half, -half, 0, 0, 0, 0]), atol=1e-5, rtol=0
    )


def test_reduces_to_clipped_ratio_without_weight():
    same(replace(METHOD, economy_weight=0.0), ClippedRatio(), *batch())


def test_reduces_to_clipped_ratio_where_right_answers_are_equally_economic():
    same(METHOD, ClippedRatio(), *batch(economy=(0.5, 0.5, 0.5, 1, 0.25, 1)))


def test_reduces_to_clipped_ratio_while_nobody_is_right():
    same(METHOD, ClippedRatio(), *batch(right=(0,) * 6))


def test_on_policy_it_is_one_surrogate_of_the_summed_advantage():
    logprob_NS, b = batch(gap=0.0)
    summed_NS = b.advantage_NS + 0.15 * METHOD.survey(b)["economy_N"].double()[:, None]
    same(METHOD, ClippedRatio(), logprob_NS, b, dataclasses.replace(b, advantage_NS=summed_NS))


def test_off_policy_two_surrogates_are_not_one():
    """A = 1 and weight x B = -1 at r = 2: their sum 0 moves nothing; apart, the good one is clipped and the bad one is not."""
    lp = torch.zeros(1, 1, dtype=torch.float64)
    b = TrainBatch(
        mask_NS=lp == 0,
        proximal_NS=lp - torch.log(torch.tensor(2.0)),
        advantage_NS=lp + 1,
        facts={"economy_N": torch.tensor([-1.0])},
    )
    x = lp.clone().requires_grad_()
    loss = replace(METHOD, economy_weight=1.0)(x, b).loss_NS.sum()
    loss.backward()
    assert loss.item() == pytest.approx(-1.2 + 2) and x.grad.item() == pytest.approx(2)


def test_unnamed_rewards_and_negative_weights_are_refused():
    _, b = batch()
    with pytest.raises(ValueError, match="score/cheap"):
        TwoChannelRatio(economy="cheap").survey(b)
    with pytest.raises(ValueError, match="0 \\(off\\) or above"):
        TwoChannelRatio(economy_weight=-1.0)
