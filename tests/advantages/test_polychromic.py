"""The set objective: by hand, its reductions, and that variety without reward earns nothing."""

import itertools

import pytest
import torch

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.estimators.leave_one_out import LeaveOneOut
from gimbal.advantages.estimators.polychromic import Polychromic
from gimbal.records import TrainBatch


def batch(reward, kind=None, group=None):
    n = len(reward)
    return TrainBatch(
        mask_NS=torch.ones(n, 1, dtype=torch.bool),
        reward_NS=torch.tensor(reward, dtype=torch.float64)[:, None],
        group_N=torch.tensor(group or [0] * n),
        facts={} if kind is None else {"score/kind": torch.tensor(kind)},
    )


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b), atol=1e-6, rtol=1e-6, check_dtype=False)


VARIED = [1.0, 0.2, 0, 1, 0.5, 0, 1, 0.3], [0, 0, 0, 0, 0, 1, 1, 1]


def test_by_hand():
    """Sets {a, b}, {a, c}, {b, c} with rewards 1, 1, 0 and kinds x, x, y: f = 1/2, 1/2, 1/2; with c right too: 1/2, 1, 1."""
    close(Polychromic(size=2, kinds="score/kind")(batch([1, 1, 0], [0, 0, 1]))[:, 0], [0.0, 0, 0])
    a = Polychromic(size=2, kinds="score/kind")(batch([1, 1, 1], [0, 0, 1]))[:, 0]
    close(a, torch.tensor([0.75, 0.75, 1.0]) - 2.5 / 3)


def test_reduces_to_group_centered_for_single_rollouts():
    close(Polychromic(size=1)(batch(VARIED[0], group=VARIED[1])), GroupCentered()(batch(VARIED[0], group=VARIED[1])))


@pytest.mark.parametrize("size", [2, 3])
def test_reduces_to_leave_one_out_where_all_differ(size):
    b = batch(VARIED[0][:5], kind=[3, 1, 4, 0, 2])
    close(Polychromic(size=size, kinds="score/kind")(b), LeaveOneOut()(b) * (1 / size - 1 / 5))
    close(Polychromic(size=size)(b), Polychromic(size=size, kinds="score/kind")(b))


def test_identical_rollouts_divide_by_the_size():
    b = batch(VARIED[0][:5], kind=[0] * 5)
    close(Polychromic(size=3, kinds="score/kind")(b), Polychromic(size=3)(b) / 3)


def test_variety_without_reward_earns_nothing():
    assert (Polychromic(size=2, kinds="score/kind")(batch([0.0] * 5, [0, 1, 2, 2, 2])) == 0).all()
    rare = Polychromic(size=2, kinds="score/kind")(batch([1.0] * 5, [0, 0, 0, 0, 1]))[:, 0]
    assert rare[4] > 0 > rare[0]


def test_it_is_the_mean_over_all_sets():
    reward, kind = torch.tensor(VARIED[0]), [0, 1, 1, 2, 0, 0, 2, 1]
    sets = list(itertools.combinations(range(8), 4))
    f = {s: float(reward[list(s)].mean()) * len({kind[i] for i in s}) / 4 for s in sets}
    mean = sum(f.values()) / len(sets)
    expected = [sum(f[s] - mean for s in sets if i in s) / sum(i in s for s in sets) for i in range(8)]
    close(Polychromic(kinds="score/kind")(batch(VARIED[0], kind))[:, 0], expected)


def test_small_groups_are_one_set():
    assert (Polychromic(size=4)(batch([1.0, 0, 0, 0])) == 0).all()
    assert (Polychromic(size=1)(batch([1.0, 2.0], group=[0, 1])) == 0).all()


def test_errors_say_the_way_out():
    with pytest.raises(ValueError, match="at least one"):
        Polychromic(size=0)
    with pytest.raises(ValueError, match="lower size"):
        Polychromic(size=20)(batch([0.0] * 40))
