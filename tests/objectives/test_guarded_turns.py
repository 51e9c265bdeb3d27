"""A turn in which one ratio ran away."""

import math

import pytest
import torch

from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.objectives.surrogates.guarded_turns import GuardedTurns
from gimbal.records import TrainBatch

G = torch.Generator().manual_seed(0)


def batch(scale=0.2):
    logprob_NS = torch.randn(5, 6, generator=G, dtype=torch.float64) - 2
    return logprob_NS, TrainBatch(
        mask_NS=torch.arange(6) < torch.tensor([6, 2, 5, 1, 4])[:, None],
        proximal_NS=logprob_NS + scale * torch.randn(5, 6, generator=G),
        advantage_NS=torch.randn(5, 6, generator=G, dtype=torch.float64),
        turn_NS=torch.tensor([0, 0, 1, 1, 1, 2]).expand(5, 6).clone(),
    )


def loss_and_gradient(part, logprob_NS, b):
    leaf_NS = logprob_NS.clone().requires_grad_()
    loss_NS = part(leaf_NS, b).loss_NS
    return loss_NS, torch.autograd.grad(loss_NS.sum(), leaf_NS)[0]


@pytest.mark.parametrize(("scale", "guard"), [(0.2, 10.0), (3.0, float("inf"))])
def test_without_a_runaway_it_is_the_clipped_ratio(scale, guard):
    logprob_NS, b = batch(scale)
    plain = ClippedRatio(clip_low=0.1, clip_high=0.1)
    for x, y in zip(
        *(loss_and_gradient(part, logprob_NS, b) for part in (GuardedTurns(guard=guard), plain)), strict=True
    ):
        assert torch.equal(x, y)


def test_guard_0_is_the_clipped_term_everywhere():
    logprob_NS, b = batch(1.0)
    loss_NS, gradient_NS = loss_and_gradient(GuardedTurns(guard=0.0), logprob_NS, b)
    ratio_NS = (logprob_NS - b.proximal_NS).exp()
    expected_NS = -ratio_NS.clamp(0.9, 1.1) * b.advantage_NS
    torch.testing.assert_close(loss_NS[b.mask_NS], expected_NS[b.mask_NS])
    assert (gradient_NS[(ratio_NS - 1).abs() > 0.1] == 0).all()


def test_by_hand_one_turn_is_held_back_and_the_other_is_not():
    ratio_S = torch.tensor([20.0, 0.5, 5.0, 1.05, 5.0, 0.5], dtype=torch.float64)
    advantage_S = torch.tensor([-1.0, 1.0, -1.0, 2.0, -1.0, 1.0], dtype=torch.float64)
    b = TrainBatch(
        mask_NS=torch.ones(1, 6, dtype=torch.bool),
        proximal_NS=torch.zeros(1, 6, dtype=torch.float64),
        advantage_NS=advantage_S[None],
        turn_NS=torch.tensor([[0, 0, 0, 0, 1, 1]]),
    )
    loss_NS, gradient_NS = loss_and_gradient(GuardedTurns(), ratio_S.log()[None], b)
    torch.testing.assert_close(loss_NS, -torch.tensor([[-1.1, 0.9, -1.1, 2.1, -5.0, 0.5]], dtype=torch.float64))
    torch.testing.assert_close(gradient_NS, -torch.tensor([[0, 0, 0, 2.1, -5.0, 0.5]], dtype=torch.float64))
    assert GuardedTurns()(ratio_S.log()[None], b).metrics["guard/frac"].tolist() == [[1, 1, 1, 1, 0, 0]]


def test_a_runaway_under_the_mask_guards_nothing():
    logprob_NS, b = batch()
    far_NS = logprob_NS.where(b.mask_NS, math.log(1e6))
    assert not GuardedTurns()(far_NS, b).metrics["guard/frac"].any()


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="guard"):
        GuardedTurns(guard=-1.0)
    with pytest.raises(ValueError, match="distances from 1"):
        GuardedTurns(clip_low=-0.1)
