"""Information and its stability over wordings: by hand, and where there is no such term."""

import dataclasses

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.reward_shaping.entropy_consistency import EntropyConsistency
from gimbal.records import TrainBatch


def batch(entropy, group):
    n = len(entropy)
    mask_NS = torch.arange(3) < torch.tensor([2, 3, 1, 2, 3])[:n, None]
    return TrainBatch(
        mask_NS=mask_NS,
        reward_NS=torch.arange(n, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0, 0]),
        entropy_NS=torch.tensor(entropy, dtype=torch.float64)[:, None].expand(-1, 3),
        group_N=torch.tensor(group),
    )


def added(shaping, b):
    return (shaping(b) - b.reward_NS).sum(-1)


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b), atol=1e-6, rtol=1e-6, check_dtype=False)


def test_by_hand():
    """H of 1, 3 and 5, 5, 2: span 4, means 2 and 4."""
    b = batch([1.0, 3, 5, 5, 2], [0, 0, 1, 1, 1])
    close(added(EntropyConsistency(stability=0.0), b), [0.0, 0.25, 0.5, 0.5, 0.125])
    close(added(EntropyConsistency(information=0.0), b), torch.tensor([-1.0, -1, -1, -1, -2]) / 8)
    close(added(EntropyConsistency(information=0.0, gap=2.0), b), torch.tensor([-1.0, -1, -1, -1, -2]) / 4)
    assert (EntropyConsistency()(b) - b.reward_NS)[1, :2].tolist() == [0, 0]  # all on the last decision


def test_wordings_are_told_by_a_fact():
    entropy = [1.0, 3, 5, 5, 2]
    b = batch(entropy, [0, 1, 2, 3, 4]).with_columns({"score/family": torch.tensor([7.0, 7, 9, 9, 9])})
    close(EntropyConsistency(over="score/family")(b), EntropyConsistency()(batch(entropy, [0, 0, 1, 1, 1])))


def test_a_lone_wording_has_no_term_of_stability():
    assert (added(EntropyConsistency(information=0.0), batch([1.0, 3, 5], [0, 1, 2])) == 0).all()


def test_identical_wordings_reduce_to_the_ordinary_group():
    b = batch([2.0] * 4, [0, 0, 1, 1])
    assert torch.equal(EntropyConsistency()(b), b.reward_NS)
    alike = batch([2.0, 2, 5, 5], [0, 0, 1, 1])
    shaped = dataclasses.replace(alike, reward_NS=EntropyConsistency()(alike))
    close(GroupNormalized()(shaped), GroupNormalized()(alike))


def test_zero_weights_change_nothing():
    b = batch([1.0, 3, 5], [0, 0, 0])
    assert torch.equal(EntropyConsistency(information=0.0, stability=0.0)(b), b.reward_NS)


def test_a_row_without_decisions_takes_no_part():
    b = batch([1.0, 3, 99], [0, 0, 0])
    b = dataclasses.replace(b, mask_NS=b.mask_NS & (torch.arange(3) != 2)[:, None])
    close(added(EntropyConsistency(), b)[:2], added(EntropyConsistency(), batch([1.0, 3], [0, 0])))
    assert (EntropyConsistency()(b)[2] == 0).all()


def test_a_negative_gap_is_refused():
    with pytest.raises(ValueError, match="difference"):
        EntropyConsistency(gap=-1.0)
