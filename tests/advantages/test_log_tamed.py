"""Log-taming: which reward is compressed, by how much, and when nothing is."""

import dataclasses
import math

import pytest
import torch

from gimbal.advantages.reward_shaping.log_tamed import LogTamed
from gimbal.records import TrainBatch


def batch(**rewards):
    value = {name: torch.tensor(x, dtype=torch.float64) for name, x in rewards.items()}
    n = len(next(iter(value.values())))
    mask_NS = torch.arange(4) < torch.tensor([4, 2, 1, 3])[:n, None]
    reward_NS = torch.full((n, 4), 0.25, dtype=torch.float64).where(mask_NS, 0)
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS, facts={f"score/{name}": x for name, x in value.items()})


TAILED, BOUNDED = [0.0, 1.0, 30.0, 2.0], [0.5, 1.0, 0.5, 1.0]


def test_by_hand():
    b = batch(tailed=TAILED, bounded=BOUNDED)
    change = LogTamed()(b) - b.reward_NS
    expected = torch.tensor([math.log1p(x) - x for x in TAILED], dtype=torch.float64)
    torch.testing.assert_close(change.sum(-1), expected)
    assert (change[2, 0], change[1, 1], change[3, 2]) == tuple(change.sum(-1)[[2, 1, 3]]) and change[1, 0] == 0
    assert LogTamed().report(b) == {"tamed/bounded": 0.0, "tamed/tailed": 1.0}


def test_weights_are_the_rewards_own():
    b = batch(tailed=TAILED, bounded=BOUNDED)
    half = LogTamed(rewards=("tailed", "bounded"), weights=(0.5, 2.0))(b) - b.reward_NS
    torch.testing.assert_close(half, 0.5 * (LogTamed()(b) - b.reward_NS))


@pytest.mark.parametrize(
    "b",
    [
        batch(tailed=TAILED),
        batch(tailed=TAILED, twice=[2 * x for x in TAILED], again=TAILED),
        batch(nothing=[0.0] * 4, equal=[3.0] * 4),
    ],
)
@pytest.mark.parametrize("limit", ["mean", "median", math.inf])
def test_one_reward_or_equal_spreads_change_nothing(b, limit):
    assert torch.equal(LogTamed(limit=limit, eps=0.0 if "score/twice" in b.facts else 1e-6)(b), b.reward_NS)


def test_a_fixed_limit_and_the_median():
    b = batch(a=TAILED, b=BOUNDED, c=[1.0, 2, 1, 2])
    assert sum(LogTamed(limit=0.0).report(b).values()) == 3
    assert LogTamed(limit="median").report(b)["tamed/a"] == 1
    assert sum(LogTamed(limit="median").report(b).values()) <= 1


def test_negative_rewards_stay_finite():
    b = batch(deep=[-5.0, 1.0, -1.0, 0.0], bounded=BOUNDED)
    change = (LogTamed()(b) - b.reward_NS).sum(-1)
    torch.testing.assert_close(change[0], torch.tensor(5 - math.log(6), dtype=torch.float64))
    assert torch.isfinite(change).all()


def test_a_row_without_decisions_is_left_alone():
    b = batch(tailed=TAILED, bounded=BOUNDED)
    empty = dataclasses.replace(b, mask_NS=b.mask_NS & (torch.arange(4) != 2)[:, None])
    assert (LogTamed()(empty)[2] == 0).all()


def test_errors_say_the_way_out():
    with pytest.raises(ValueError, match="1 weights for 0"):
        LogTamed(weights=(1.0,))
    with pytest.raises(ValueError, match="LogTamed reads the rewards"):
        LogTamed(rewards=("missing",))(batch(tailed=TAILED))
