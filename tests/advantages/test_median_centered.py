"""The median as baseline, and the mask that drops the rollout it is."""

import math

import pytest
import torch

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.estimators.median_centered import MedianCentered
from gimbal.objectives.masks.pivot_mask import PivotMask
from gimbal.records import TrainBatch


def outcome(rewards, groups):
    n = len(rewards)
    reward_NS = torch.zeros(n, 2, dtype=torch.float64)
    reward_NS[:, 1] = torch.tensor(rewards, dtype=torch.float64)
    return TrainBatch(mask_NS=torch.ones(n, 2, dtype=torch.bool), reward_NS=reward_NS, group_N=torch.tensor(groups))


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b), atol=1e-6, rtol=1e-6, check_dtype=False)


def test_by_hand():
    b = outcome([1, 2, 9, 4, 4.5, 5], [0, 0, 0, 1, 1, 1])
    close(MedianCentered(floor=0.0, eps=0.0)(b)[:, 0], [-1.0, 0, 7, -1, 0, 1])
    close(MedianCentered()(b)[:, 0], [-1 / 1.001, 0, 7 / 1.001, -0.5 / 0.501, 0, 0.5 / 0.501])
    close(MedianCentered(floor=2.0, eps=0.0)(b)[:, 0], [-0.5, 0, 3.5, -0.25, 0, 0.25])
    close(MedianCentered(scale="std", floor=0.0, eps=0.0)(b)[:3, 0], torch.tensor([-1.0, 0, 7]) / math.sqrt(19))
    assert PivotMask()(b)[:, 0].tolist() == [True, False, True, True, False, True]


def test_equal_rewards_give_0():
    b = outcome([0.1] * 3 + [5], [0, 0, 0, 1])
    for scale in ("mad", "std", "none"):
        for compensate in (False, True):
            assert (MedianCentered(scale=scale, floor=0.0, eps=0.0, compensate=compensate)(b) == 0).all()
    assert PivotMask()(b)[:, 0].tolist() == [False, True, True, False]


def test_reduces_to_group_centered_where_the_mean_is_the_median():
    b = outcome([1, 2, 3, 0, 5, 10], [0, 0, 0, 1, 1, 1])
    close(MedianCentered(scale="none")(b), GroupCentered()(b))


def test_equals_group_centered_in_expectation_over_symmetric_rewards():
    g = torch.Generator().manual_seed(0)
    reward = torch.randn(3 * 4000, generator=g, dtype=torch.float64)
    b = outcome(reward.tolist(), torch.arange(4000).repeat_interleave(3).tolist())
    gap = (MedianCentered(scale="none")(b) - GroupCentered()(b))[:, 0]
    assert abs(float(gap.mean())) < 4 * float(gap.std()) / math.sqrt(4000)


@pytest.mark.parametrize("size", [3, 5, 9])
def test_signs_of_the_kept_rollouts_sum_to_0(size):
    reward = torch.randn(size, generator=torch.Generator().manual_seed(size))
    b = outcome(reward.tolist(), [0] * size)
    kept = MedianCentered()(b)[PivotMask()(b)[:, 0]][:, 0]
    assert len(kept) == size - 1 and kept.sign().sum() == 0 and (kept != 0).all()


def test_binary_rewards_teach_by_the_rarer_outcome():
    b = outcome([1, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1])
    close(MedianCentered(floor=0.0)(b)[:, 0], [1000.0, 0, 0, 0, 0, -1000])
    close(MedianCentered(eps=0.0)(b)[:, 0], [4.0, 0, 0, 0, 0, -4])
    close(MedianCentered(scale="none", compensate=True)(b)[:, 0], [3.0, 0, 0, 0, 0, -3])


def test_one_pivot_whatever_the_ties():
    keep = PivotMask()(outcome([0, 0, 0, 1, 1, 2, 3], [0, 0, 0, 0, 0, 1, 1]))[:, 0]
    assert keep.tolist() == [False, True, True, True, True, True, True]  # the even group has no pivot


def test_negative_floors_are_refused():
    with pytest.raises(ValueError, match="0 or above"):
        MedianCentered(floor=-1.0)
