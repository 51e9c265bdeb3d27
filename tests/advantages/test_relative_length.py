"""The length reward by hand, its two ends, and what it does to the signs of right answers."""

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.reward_shaping.relative_length import RelativeLength
from gimbal.records import TrainBatch
from gimbal.rewards.overlong import OverlongPenalty


def batch(length, right, group=None):
    length_N, right_N = torch.tensor(length), torch.tensor(right)
    mask_NS = torch.arange(max(length)) < length_N[:, None]
    last_NS = torch.arange(max(length)) == length_N[:, None] - 1
    return TrainBatch(
        mask_NS=mask_NS,
        reward_NS=right_N[:, None] * last_NS,
        group_N=torch.tensor(group or [0] * len(length)),
        facts={"score/right": right_N},
    )


def earned(rule, b):
    return rule(b).sum(-1).tolist()


def test_by_hand():
    b = batch([2, 4, 6, 10, 3], [1.0, 1.0, 0.0, 1.0, 0.0])
    # lam = 1/2 - (L - 2) / 8
    assert earned(RelativeLength(weight=1.0), b) == [1.5, 1.25, 0.0, 0.5, 0.0]
    assert earned(RelativeLength(weight=1.0), batch([2, 10], [1.0, 0.0])) == [1.5, -0.5]


def test_it_sits_on_the_last_decision():
    shaped_NS = RelativeLength(weight=1.0)(batch([1, 3], [1.0, 1.0]))
    assert shaped_NS.tolist() == [[1.5, 0, 0], [0, 0, 0.5]]


@pytest.mark.parametrize(
    ("rule", "b"),
    [
        (RelativeLength(weight=0.0), batch([2, 4, 6], [1.0, 0.0, 1.0])),
        (RelativeLength(), batch([2, 4, 6], [1.0, 0.0, 1.0], group=[0, 1, 2])),
        (RelativeLength(), batch([4, 4, 4], [1.0, 0.0, 1.0])),
    ],
    ids=["no weight", "one answer a prompt", "one length"],
)
def test_reduces_to_the_rewards(rule, b):
    assert torch.equal(rule(b), b.reward_NS)


def test_groups_do_not_mix():
    b = batch([2, 4, 20, 40], [1.0, 1.0, 1.0, 1.0], group=[7, 7, 3, 3])
    assert earned(RelativeLength(weight=1.0), b) == [1.5, 0.5, 1.5, 0.5]


def test_a_row_without_decisions_is_no_shortest_answer():
    b = batch([4, 8], [1.0, 1.0])
    wide = TrainBatch(
        mask_NS=torch.cat([b.mask_NS, torch.zeros(1, 8, dtype=torch.bool)]),
        reward_NS=torch.cat([b.reward_NS, torch.zeros(1, 8)]),
        group_N=torch.tensor([0, 0, 0]),
        facts={"score/right": torch.tensor([1.0, 1.0, 1.0])},
    )
    assert earned(RelativeLength(weight=1.0), wide) == [1.5, 0.5, 0.0]


def test_both_length_rules_can_turn_a_right_answer_bad(group_rewards=(1.0, 1.0, 1.0, 0.0)):
    """The flaw that DRPO fixes: among right answers the longest falls below the mean. A short wrong answer never gains."""
    b = batch([2, 4, 40, 2], list(group_rewards))
    plain_N = GroupNormalized()(b)[:, 0]
    shaped = RelativeLength(weight=2.0)
    relative_N = GroupNormalized()(TrainBatch(mask_NS=b.mask_NS, reward_NS=shaped(b), group_N=b.group_N))[:, 0]
    assert (plain_N[:3] > 0).all() and relative_N[2] < 0 < relative_N[0] and relative_N[3] < 0
    assert shaped.report(b) == {"length/penalised_right": pytest.approx(1 / 3)}
    assert [OverlongPenalty(limit=32, zone=16)._penalty(n) for n in (2, 4, 40, 2)] == [0, 0, -1, 0]


def test_nobody_right_and_refusals():
    assert RelativeLength().report(batch([2, 4], [0.0, 0.0])) == {"length/penalised_right": 0.0}
    with pytest.raises(ValueError, match="pay for length"):
        RelativeLength(weight=-1.0)
    with pytest.raises(ValueError, match="absent"):
        RelativeLength(right="absent")(batch([2, 4], [0.0, 0.0]))
