"""Masked means and group statistics: golden values, empty sets, and exactness where a method divides by the result."""

import pytest
import torch

from gimbal import ops

X = torch.tensor([[1.0, 2.0, float("nan")], [6.0, float("inf"), float("nan")], [float("nan")] * 3])
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.bool)


def test_masked_statistics_never_read_what_is_masked():
    assert ops.masked_sum(X, MASK) == 9 and ops.masked_mean(X, MASK) == 3
    torch.testing.assert_close(ops.masked_std(X, MASK), torch.tensor([1.0, 2.0, 6.0]).std(correction=0))
    torch.testing.assert_close(ops.masked_std(X, MASK, ddof=1), torch.tensor([1.0, 2.0, 6.0]).std())
    torch.testing.assert_close(ops.sequence_mean(X, MASK), torch.tensor([1.5, 6.0, 0.0]))


def test_an_empty_mask_gives_0():
    nothing = torch.zeros_like(MASK)
    assert ops.masked_sum(X, nothing) == ops.masked_mean(X, nothing) == ops.masked_std(X, nothing, ddof=1) == 0


def test_half_precision_is_summed_in_float32():
    x = torch.full((4096,), 1.0, dtype=torch.float16)
    mask = torch.ones(4096, dtype=torch.bool)
    assert ops.masked_sum(x, mask).dtype == torch.float32 and ops.masked_sum(x, mask) == 4096
    assert ops.masked_mean(x * 40, mask) == 40  # their sum is beyond float16


def test_group_statistics_by_hand():
    x_N, group_N = torch.tensor([1.0, 10.0, 2.0, 6.0, 5.0]), torch.tensor([4, -1, 4, 4, 9])
    assert ops.group_size(group_N).tolist() == [3, 1, 3, 3, 1]
    assert ops.group_mean(x_N, group_N).tolist() == [3, 10, 3, 3, 5]
    assert ops.group_others_mean(x_N, group_N).tolist() == [4, 10, 3.5, 1.5, 5]
    torch.testing.assert_close(ops.group_std(x_N, group_N), torch.tensor([7**0.5, 0, 7**0.5, 7**0.5, 0]))
    torch.testing.assert_close(ops.group_std(x_N, group_N, ddof=0)[0], torch.tensor((14 / 3) ** 0.5))


@pytest.mark.parametrize("value", [0.1, 0.3, 1 / 3, -0.7, 1e-6, 12345.678])
@pytest.mark.parametrize("count", [2, 3, 7, 64, 1001])
def test_the_mean_of_equal_rewards_is_that_reward(value, count):
    """To the bit: an estimator divides the difference by the standard deviation, which is then as small."""
    x_N, group_N = torch.full((count,), value), torch.zeros(count, dtype=torch.long)
    assert torch.equal(ops.group_mean(x_N, group_N), x_N)
    assert torch.equal(ops.group_others_mean(x_N, group_N), x_N)
    assert (ops.group_std(x_N, group_N) == 0).all()


def test_no_groups_are_no_error():
    x_N, group_N = torch.zeros(0), torch.zeros(0, dtype=torch.long)
    for statistic in (ops.group_mean, ops.group_others_mean, ops.group_std):
        assert statistic(x_N, group_N).shape == (0,)
