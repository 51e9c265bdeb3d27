"""Rewards by position: by hand, what redundancy touches, and where GRPO remains."""

import dataclasses
from dataclasses import replace

import pytest
import torch

from gimbal import ops
from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.estimators.position_normalized import PositionNormalized
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.records import TrainBatch

METHOD = PositionNormalized(necessary="score/necessary", steps="score/steps", max_length=10)


def batch(right=(1, 1, 0, 1, 0, 1), necessary=(1, 2, 2, 0, 1, 1), steps=(2, 2, 2, 0, 1, 1), group=(4, 4, 4, 1, 1, 7)):
    mask_NS = torch.arange(4) < torch.tensor([4, 3, 4, 2, 4, 4])[:, None]
    right_N = torch.tensor(right, dtype=torch.float64)
    return TrainBatch(
        mask_NS=mask_NS,
        reward_NS=right_N[:, None] * torch.tensor([1.0, 0, 0, 0], dtype=torch.float64),
        group_N=torch.tensor(group),
        turn_NS=torch.tensor([0, 1, 1, 2]).expand(6, 4).where(mask_NS, 0),
        facts={"score/necessary": torch.tensor(necessary), "score/steps": torch.tensor(steps)},
    )


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=0)


def normalised(*values):
    x = torch.tensor(values, dtype=torch.float64)
    return (x - x.mean()) / (x.std() + 1e-6)


def test_by_hand():
    b = batch()
    a = METHOD(b)
    apart, priced = normalised(1.1, 1.1, 0), normalised(1 - 0.1 * 4 / 10, 1.1, 0)  # row 0 has its answer after turn 0
    close(a[:3, 0], apart)
    close(a[:3, 1], priced)
    close(a[:3, 2], priced)
    close(a[[0, 2], 3], apart[[0, 2]])  # turn 2 is the answer; row 1 has ended and counts in full
    assert a[1, 3] == 0 and (a[5] == 0).all()
    close(a[3:5, 0], normalised(1.1, 0))
    assert METHOD.report(b) == {"redundant_frac": pytest.approx(2 / 21)}


def test_the_released_code_subtracts_the_price_from_full():
    a = replace(METHOD, redundant=1.1)(batch())
    close(a[:3, 1], normalised(1.1 - 0.1 * 4 / 10, 1.1, 0))


def test_reduces_to_grpo_on_every_position_where_nothing_is_redundant():
    b = batch(necessary=(2, 2, 2, 0, 1, 1))
    logprob_NS = -torch.rand(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    b = replace(b, proximal_NS=logprob_NS + 0.3)
    host_NS = GroupNormalized()(b)
    expected = loss_and_gradient(logprob_NS, b, host_NS)
    priceless, redundant = replace(METHOD, redundant=1.1, slope=0.0), batch()
    for a in (METHOD(b), PositionNormalized()(redundant), priceless(redundant)):
        close(a, host_NS)
        for got, want in zip(loss_and_gradient(logprob_NS, b, a), expected, strict=True):
            close(got, want)


def loss_and_gradient(logprob_NS, b, advantage_NS):
    x = logprob_NS.clone().requires_grad_()
    loss = (ClippedRatio()(x, replace(b, advantage_NS=advantage_NS)).loss_NS * ops.TokenMean()(b.mask_NS)).sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def test_reduces_to_the_group_advantage_at_padded_positions_too():
    """A rollout that is over still stands for its whole reward where others continue."""
    b = batch(necessary=(2, 2, 2, 0, 1, 1))
    close(METHOD(b)[:, 3], GroupNormalized()(replace(b, mask_NS=torch.ones_like(b.mask_NS)))[:, 3] * b.mask_NS[:, 3])


def test_an_equal_group_is_told_apart_by_redundancy_alone():
    b = batch(right=(1, 1, 1, 1, 1, 1))
    a = METHOD(b)
    close(a[:3, 0], [0, 0, 0])
    assert (a[0, 1:3] < 0).all() and (a[1, 1:3] > 0).all() and a[0, 3] == 0
    assert (METHOD(batch(right=(0,) * 6)) == 0).all()


def test_it_minds_neither_order_nor_padding_nor_what_is_masked():
    b = batch()
    order = torch.tensor([2, 5, 0, 4, 1, 3])
    close(METHOD(b.select(order)), METHOD(b)[order])
    columns = {key: getattr(b, key) for key in ("mask_NS", "reward_NS", "turn_NS")}
    wide = b.with_columns({key: torch.nn.functional.pad(x, (0, 3)) for key, x in columns.items()})
    close(METHOD(wide)[:, :4], METHOD(b))
    spoilt = dataclasses.replace(b, reward_NS=b.reward_NS.where(b.mask_NS, float("nan")))
    close(METHOD(spoilt), METHOD(b))
    assert (METHOD(replace(b, mask_NS=torch.zeros_like(b.mask_NS))) == 0).all()


def test_unfit_options_are_refused():
    for options, word in (
        ({"necessary": "score/a"}, "both"),
        ({"max_length": 0}, "counts decisions"),
        ({"redundant": 1.2}, "at most full"),
        ({"slope": -1.0}, "slope 0"),
    ):
        with pytest.raises(ValueError, match=word):
            PositionNormalized(**options)
    with pytest.raises(ValueError, match="score/none"):
        PositionNormalized(necessary="score/none", steps="score/none")(batch())
