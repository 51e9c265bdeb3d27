"""group_normalised: every centre and scale by hand, the sets it ignores, and that the group estimators are cases of it."""

import pytest
import torch

from gimbal import ops
from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.estimators.leave_one_out import LeaveOneOut
from gimbal.records import TrainBatch

X = torch.tensor([1.0, 10.0, 2.0, 6.0, 5.0, 20.0], dtype=torch.float64)
GROUP = torch.tensor([4, -1, 4, 4, 9, -1])


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("centre", "expected"),
    [
        ("mean", [-2, -5, -1, 3, 0, 5]),
        ("others", [-3, -10, -1.5, 4.5, 0, 10]),
        ("median", [-1, -5, 0, 4, 0, 5]),
        ("none", [1, 10, 2, 6, 5, 20]),
    ],
)
def test_centres(centre, expected):
    close(ops.group_normalised(X, GROUP, centre=centre, scale="none"), expected)


def test_scales():
    std, pair = 7**0.5, 50**0.5
    close(ops.group_normalised(X, GROUP, eps=0.0)[[0, 3, 1]], [-2 / std, 3 / std, -5 / pair])
    close(ops.group_normalised(X, GROUP, ddof=0, eps=0.0)[[0, 3, 1]], [-2 / (14 / 3) ** 0.5, 3 / (14 / 3) ** 0.5, -1])
    close(
        ops.group_normalised(X, GROUP, centre="median", scale="mad", eps=0.0)[[0, 2, 3, 1, 5]], [-1, 0, 4, -1, 1]
    )  # MAD of (1, 2, 6) is 1, of (10, 20) is 5
    close(ops.group_normalised(X, GROUP, scale="std", eps=1.0)[0], -2 / (std + 1))
    close(ops.group_normalised(X, GROUP, centre="median", scale="mad", eps=3.0)[3], 1.0)


def test_what_is_not_counted_neither_gives_nor_gets():
    counted = torch.tensor([True, True, True, False, True, True])
    got = ops.group_normalised(X, GROUP, scale="none", counted_N=counted)
    close(got, [-0.5, -5, 0.5, 0, 0, 5])
    spoilt = X.where(counted, float("inf"))
    assert torch.equal(got, ops.group_normalised(spoilt, GROUP, scale="none", counted_N=counted))
    nobody = torch.zeros_like(counted)
    for centre in ("mean", "others", "median", "none"):
        for scale in ("std", "mad", "none"):
            assert (ops.group_normalised(X, GROUP, centre=centre, scale=scale, counted_N=nobody) == 0).all()


@pytest.mark.parametrize("centre", ["mean", "others", "median"])
@pytest.mark.parametrize("scale", ["std", "mad", "none"])
@pytest.mark.parametrize("value", [0.1, 1 / 3, -12345.678])
def test_lone_members_and_equal_values_give_exactly_0(centre, scale, value):
    x = torch.full((6,), value)
    assert (ops.group_normalised(x, GROUP, centre=centre, scale=scale) == 0).all()
    assert (ops.group_normalised(X.float(), torch.arange(6), centre=centre, scale=scale) == 0).all()


def test_a_single_counted_member_gives_0():
    one = torch.tensor([True, False, False, False, False, False])
    assert (ops.group_normalised(X, GROUP, counted_N=one) == 0).all()


def test_no_spread_and_no_eps_is_0():
    x = torch.tensor([1.0, 1.0, 2.0, 0.3, 0.3])
    group = torch.tensor([0, 0, 0, 1, 1])
    assert (ops.group_normalised(x, group, centre="median", scale="mad", eps=0.0) == 0).all()
    assert (ops.group_normalised(x, group, eps=0.0)[3:] == 0).all()


def test_labels_and_order_mean_nothing():
    order = torch.tensor([3, 5, 0, 1, 4, 2])
    close(ops.group_normalised(X[order], GROUP[order] * 7 + 1), ops.group_normalised(X, GROUP)[order])


@pytest.mark.parametrize(
    ("estimator", "kwargs"),
    [
        (GroupNormalized(), {}),
        (GroupNormalized(ddof=0, eps=1e-4), {"ddof": 0, "eps": 1e-4}),
        (LeaveOneOut(), {"centre": "others", "scale": "none"}),
        (GroupCentered(), {"scale": "none"}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reduces_to_the_group_estimators_exactly(estimator, kwargs, dtype):
    x = X.to(dtype)
    b = TrainBatch(mask_NS=torch.ones(6, 1, dtype=torch.bool), reward_NS=x[:, None], group_N=GROUP)
    assert torch.equal(ops.group_normalised(x, GROUP, **kwargs), estimator(b)[:, 0])


def test_the_input_is_left_alone():
    x = X.clone()
    ops.group_normalised(x, GROUP, centre="none", scale="std")
    assert torch.equal(x, X)
