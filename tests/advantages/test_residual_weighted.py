"""Weights by what lies outside the good rollouts' span: by hand, at the limits, and on a shared prefix."""

import dataclasses

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.advantages.shapings.residual_weighted import ResidualWeighted
from gimbal.records import TrainBatch

H = 8


def batch(reward=(1.0, 0, 0, 1.0), group=(0, 0, 0, 0), seed=0):
    """Good rows vary in the first two directions only; bad rows everywhere."""
    g = torch.Generator().manual_seed(seed)
    n, s = len(reward), 6
    mask_NS = torch.ones(n, s, dtype=torch.bool)
    mask_NS[1, 4:] = False
    good_N = torch.tensor(reward) > 0.5
    hidden_NSH = torch.randn(n, s, H, generator=g, dtype=torch.float64)
    plane_2H = torch.linalg.qr(torch.randn(H, 2, generator=g, dtype=torch.float64))[0].T
    hidden_NSH[good_N] = torch.randn(int(good_N.sum()), s, 2, generator=g, dtype=torch.float64) @ plane_2H
    reward_NS = torch.zeros(n, s, dtype=torch.float64)
    reward_NS[:, 0] = torch.tensor(reward)
    b = TrainBatch(
        mask_NS=mask_NS,
        hidden_NSH=hidden_NSH,
        behavior_NS=-torch.rand(n, s, generator=g, dtype=torch.float64),
        group_N=torch.tensor(group),
        reward_NS=reward_NS,
    )
    return dataclasses.replace(b, advantage_NS=GroupNormalized()(b))


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-9, rtol=0)


def weights(b, **choices):
    return ResidualWeighted(positive=1.0, **choices)(b) / b.advantage_NS.where(b.mask_NS, 1)


def test_written_out():
    b = batch()
    x = torch.nn.functional.layer_norm(b.hidden_NSH, (H,))
    good = x[[0, 3]].flatten(0, 1)
    v = torch.linalg.svd(good - good.mean(0))[2][:2]
    y = x - good.mean(0)
    d = (y - y @ (v.T @ v)).square().sum(-1) / H
    bad = torch.cat([d[1, :4], d[2]])
    low, high = bad.quantile(0.2), bad.quantile(0.8)
    expected = 0.1 + 0.9 * ((d - low) / (high - low)).clamp(0, 1)
    found = weights(b, rank=2)
    close(found[1, :4], expected[1, :4])
    close(found[2], expected[2])
    assert (found[1, 4:] == 0).all() and (found[[0, 3]] == 1).all()
    assert found[2].min() == pytest.approx(0.1) or found[1, :4].min() == pytest.approx(0.1)
    close(ResidualWeighted(rank=2)(b)[0], 0.1 * b.advantage_NS[0])


def test_least_1_and_positive_1_reduce_to_grpo():
    b = batch()
    assert torch.equal(ResidualWeighted(least=1.0, positive=1.0)(b), b.advantage_NS)


def test_least_1_reduces_to_w_reinforce_on_signed_outcomes():
    b = batch()
    plain = dataclasses.replace(b, advantage_NS=SignedOutcome(positive=1.0)(b))
    close(ResidualWeighted(least=1.0)(plain), SignedOutcome()(b))


def test_a_shared_prefix_is_punished_least():
    b = batch()
    hidden_NSH = b.hidden_NSH.clone()
    hidden_NSH[[1, 2], :2] = hidden_NSH[0, :2]
    found = weights(dataclasses.replace(b, hidden_NSH=hidden_NSH))
    close(found[[1, 2], :2], [[0.1, 0.1], [0.1, 0.1]])
    assert found[2, 2:].mean() > 0.5


def test_repeated_good_states_span_no_more_than_they_do():
    """Equal prefixes leave singular vectors without spread, which must not swallow residuals at random."""
    b = batch()
    twice = {
        name: torch.cat([getattr(b, name), getattr(b, name)[:1]]) for name in ("mask_NS", "hidden_NSH", "behavior_NS")
    }
    more = TrainBatch(
        **twice,
        group_N=torch.zeros(5, dtype=torch.long),
        advantage_NS=torch.cat([b.advantage_NS, b.advantage_NS[:1]]),
    )
    found = weights(more)
    d_low = found[2] > 0.1
    assert d_low.any() and torch.isfinite(found).all()


def test_flat_residuals_weigh_half_way():
    b = batch()
    hidden_NSH = b.hidden_NSH.clone()
    hidden_NSH[[1, 2]] = hidden_NSH[1, 0].clone()
    found = weights(dataclasses.replace(b, hidden_NSH=hidden_NSH))
    close(found[2], [0.55] * 6)


@pytest.mark.parametrize("reward", [(0.0, 0, 0, 0), (1.0, 1, 1, 1)])
def test_groups_of_one_kind_are_left_alone(reward):
    b = batch(reward)
    b = dataclasses.replace(b, advantage_NS=(b.reward_NS.sum(-1, keepdim=True) - 0.5).expand(4, 6) * b.mask_NS)
    close(ResidualWeighted(positive=1.0)(b), b.advantage_NS)


def test_groups_do_not_see_each_other_and_too_few_good_decisions_span_nothing():
    both = batch((1.0, 0, 0, 1.0, 1.0, 0), (0, 0, 0, 0, 7, 7))
    alone = both.select(torch.arange(4))
    close(ResidualWeighted()(both)[:4], ResidualWeighted()(alone))
    mask_NS = both.mask_NS.clone()
    mask_NS[4, 3:] = False
    few = dataclasses.replace(both, mask_NS=mask_NS)
    close(ResidualWeighted()(few)[5], few.advantage_NS[5])


def test_looks_at_no_more_good_decisions_than_it_may():
    b = dataclasses.replace(batch(), hidden_NSH=torch.randn(4, 6, H, generator=torch.Generator().manual_seed(1)))
    first, second = weights(b, most=4), weights(b, most=4)
    assert torch.equal(first, second) and not torch.allclose(first, weights(b))


def test_refusals():
    with pytest.raises(ValueError, match="not so"):
        ResidualWeighted(low=0.9)
    with pytest.raises(ValueError, match="at least"):
        ResidualWeighted(rank=0)
