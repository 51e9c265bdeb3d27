"""Turns as samples: which statistics, which mean, and where GRPO remains."""

import dataclasses
from dataclasses import replace

import pytest
import torch

from gimbal import ops
from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.estimators.turn_samples import TurnBalanced, TurnSamples, first_of_turn
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.records import TrainBatch

TURNS = torch.tensor([[0, 0, 0, 1, 2], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 0, 1, 1]])
REWARD = torch.tensor([1.0, 0.0, 0.25, 0.5, 0.75], dtype=torch.float64)


def batch(turn_NS=TURNS, group=(3, 3, 3, 8, 8)):
    mask_NS = torch.arange(5) < torch.tensor([5, 3, 4, 5, 2])[:, None]
    mask_NS[0, 1] = False
    g = torch.Generator().manual_seed(0)
    return TrainBatch(
        mask_NS=mask_NS,
        reward_NS=REWARD[:, None] * torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.float64),
        proximal_NS=-torch.rand(5, 5, generator=g, dtype=torch.float64),
        advantage_NS=torch.randn(5, 5, generator=g, dtype=torch.float64),
        group_N=torch.tensor(group),
        turn_NS=turn_NS,
    )


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=0)


def loss_and_gradient(b, advantage_NS):
    x = (b.proximal_NS + 0.3 * torch.linspace(-1, 1, 25, dtype=torch.float64).view(5, 5)).requires_grad_()
    loss_NS = ClippedRatio()(x, replace(b, advantage_NS=advantage_NS)).loss_NS
    loss = (loss_NS * ops.SequenceMean()(b.mask_NS)).sum()
    return loss_NS.detach(), loss.detach(), torch.autograd.grad(loss, x)[0]


def same(b, one, other):
    for got, want in zip(loss_and_gradient(b, one), loss_and_gradient(b, other), strict=True):
        close(got, want)


def test_by_hand():
    samples = torch.tensor([1.0, 1, 1, 0, 0.25, 0.25], dtype=torch.float64)  # three turns, one, two
    expected = (torch.tensor([1.0, 0, 0.25], dtype=torch.float64) - samples.mean()) / (samples.std() + 1e-6)
    a = TurnSamples()(batch())
    close(a[:3], expected[:, None] * batch().mask_NS[:3])
    samples = torch.tensor([0.5, 0.5, 0.75], dtype=torch.float64)  # the last row ends within its first turn
    close(a[3:, 0], (torch.tensor([0.5, 0.75], dtype=torch.float64) - samples.mean()) / (samples.std() + 1e-6))


def test_first_of_turn():
    mask = torch.tensor([[False, True, True, True, False, True]])
    assert first_of_turn(torch.tensor([[0, 0, 0, 1, 2, 3]]), mask).tolist() == [[False, True, False, True, False, True]]


@pytest.mark.parametrize("weighting", ["trajectory", "turn"])
def test_reduces_to_grpo_with_one_turn_each(weighting):
    b = batch(torch.zeros_like(TURNS))
    host = GroupNormalized()(b)
    same(b, TurnSamples(weighting=weighting)(b), host)
    same(b, TurnBalanced(weighting=weighting)(replace(b, advantage_NS=host)), host)


def test_reduces_to_grpo_weighting_trajectories():
    same(batch(), TurnSamples(weighting="trajectory")(batch()), GroupNormalized()(batch()))


def test_both_weightings_coincide_with_equally_many_turns():
    b = batch(torch.tensor([0, 0, 0, 1, 1]).expand(5, 5))
    b = replace(b, mask_NS=torch.ones_like(b.mask_NS))
    same(b, TurnSamples(ddof=0)(b), TurnSamples(ddof=0, weighting="trajectory")(b))
    same(b, TurnBalanced()(b), TurnBalanced(weighting="turn")(b))


def test_good_rollouts_of_many_turns_raise_the_mean_of_turns():
    many, few = TurnSamples()(batch()), TurnSamples(weighting="trajectory")(batch())
    assert many[0, 0] < few[0, 0] and (many[:3, 0] * torch.tensor([3, 1, 2])).sum().abs() < 1e-9


def test_balanced_turns_count_the_same():
    b = batch()
    loss = loss_and_gradient(b, TurnBalanced()(b))[1]
    plain_NS = loss_and_gradient(b, b.advantage_NS)[0]
    rows, turns = [], []
    for row in range(5):
        counted = [[plain_NS[row, s] for s in range(5) if b.mask_NS[row, s] and TURNS[row, s] == k] for k in range(3)]
        means = [sum(x) / len(x) for x in counted if x]
        rows.append(sum(means) / len(means))
        turns += means
    close(loss, sum(rows) / 5)
    close(loss_and_gradient(b, TurnBalanced(weighting="turn")(b))[1], sum(turns) / len(turns))


def test_reduces_to_the_advantage_with_turns_of_equal_length():
    b = replace(batch(torch.tensor([0, 0, 1, 1, 2]).expand(5, 5)), mask_NS=(torch.arange(5) < 4).expand(5, 5))
    close(TurnBalanced()(b), b.advantage_NS * b.mask_NS)


def test_equal_rewards_and_empty_rows_teach_nothing():
    equal = dataclasses.replace(batch(), reward_NS=batch().reward_NS * 0 + 0.3 * (torch.arange(5) == 0))
    assert (TurnSamples()(equal) == 0).all()
    assert (TurnSamples()(batch(group=(0, 1, 2, 3, 4))) == 0).all()
    empty = replace(batch(), mask_NS=batch().mask_NS & (torch.arange(5) != 0)[:, None])
    for part in (TurnSamples(), TurnBalanced(), TurnBalanced(weighting="turn")):
        assert torch.isfinite(part(empty)).all() and (part(empty)[0] == 0).all()
