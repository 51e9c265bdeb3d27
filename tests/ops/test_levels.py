"""Sums and means over tokens, turns and sequences: by hand, with holes, with nothing counted, and their gradients."""

import pytest
import torch
from jaxtyping import TypeCheckError

from gimbal import ops

X = torch.tensor([[1.0, 2, 3, 4, 5], [6, 7, 8, 9, 10]], dtype=torch.float64)
MASK = torch.tensor([[True, False, True, True, True], [True, True, True, False, False]])  # a hole, and padding
TURN = torch.tensor([[0, 0, 0, 2, 2], [0, 1, 1, 1, 1]])  # turn 1 of the first row is empty
BY_HAND = {
    ("token", "sum"): [[1, 0, 3, 4, 5], [6, 7, 8, 0, 0]],
    ("token", "mean"): [[1, 0, 3, 4, 5], [6, 7, 8, 0, 0]],
    ("turn", "sum"): [[4, 0, 4, 9, 9], [6, 15, 15, 0, 0]],
    ("turn", "mean"): [[2, 0, 2, 4.5, 4.5], [6, 7.5, 7.5, 0, 0]],
    ("sequence", "sum"): [[13, 0, 13, 13, 13], [21, 21, 21, 0, 0]],
    ("sequence", "mean"): [[3.25, 0, 3.25, 3.25, 3.25], [7, 7, 7, 0, 0]],
}
EVERY = pytest.mark.parametrize(("level", "how"), list(BY_HAND))


@EVERY
def test_by_hand(level, how):
    result = ops.pooled(X, MASK, level, TURN, how)
    torch.testing.assert_close(result, torch.tensor(BY_HAND[level, how], dtype=torch.float64))
    assert result.dtype == torch.float64 and ops.pooled(X.float(), MASK, level, TURN, how).dtype == torch.float32


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_without_turns_a_sequence_is_one_turn(how):
    assert torch.equal(ops.pooled(X, MASK, "turn", None, how), ops.pooled(X, MASK, "sequence", TURN, how))


def test_turns_of_one_decision_are_tokens():
    each = torch.arange(5).expand(2, 5)
    for how in ("sum", "mean"):
        assert torch.equal(ops.pooled(X, MASK, "turn", each, how), ops.pooled(X, MASK, "token"))


def test_mean_is_the_default_and_a_constant_is_its_own_mean():
    for level in ("token", "turn", "sequence"):
        ones = ops.pooled(torch.ones_like(X), MASK, level, TURN)
        assert torch.equal(ones, MASK.double())


@EVERY
def test_gradient(level, how):
    x = X.clone().requires_grad_()
    weight = torch.tensor([[1.0, 9, 2, 3, 5], [7, 11, 13, 9, 9]], dtype=torch.float64)
    (ops.pooled(x, MASK, level, TURN, how) * weight).sum().backward()
    # the transpose of a mean (or sum) over a unit is the mean (or sum) itself
    torch.testing.assert_close(x.grad, ops.pooled(weight, MASK, level, TURN, how))
    assert (x.grad[~MASK] == 0).all()
    assert torch.autograd.gradcheck(lambda y: ops.pooled(y, MASK, level, TURN, how), X.clone().requires_grad_())


@EVERY
@pytest.mark.parametrize("garbage", [float("nan"), float("inf")])
def test_what_lies_under_the_mask_never_matters(level, how, garbage):
    x = X.where(MASK, garbage).requires_grad_()
    result = ops.pooled(x, MASK, level, TURN.where(MASK, 4), how)
    assert torch.equal(result, ops.pooled(X, MASK, level, TURN, how))
    result.sum().backward()
    assert torch.isfinite(x.grad).all() and (x.grad[~MASK] == 0).all()


@EVERY
def test_nothing_counted_gives_zero_and_no_gradient(level, how):
    x = X.clone().requires_grad_()
    result = ops.pooled(x, torch.zeros_like(MASK), level, TURN, how)
    assert (result == 0).all()
    result.sum().backward()
    assert (x.grad == 0).all()
    one = ops.pooled(X, MASK & torch.tensor([[False], [True]]), level, TURN, how)
    assert (one[0] == 0).all() and torch.equal(one[1], ops.pooled(X, MASK, level, TURN, how)[1])
    assert ops.pooled(X[:0], MASK[:0], level, TURN[:0], how).shape == (0, 5)


def test_unknown_levels_are_refused():
    with pytest.raises((ValueError, TypeCheckError), match="level"):  # whichever looks first
        ops.pooled(X, MASK, "word")
