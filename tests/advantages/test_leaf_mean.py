"""A tree of three levels by hand, and what the docstring says it reduces to."""

import made
import numpy as np
import pytest
import torch

from gimbal.advantages import GroupCentered, LeafMean
from gimbal.dataflow.packing import pack
from gimbal.policies.token import Tokens
from gimbal.records import Episode, Group

# (parent, decisions taken over, return). 0 -> 2 -> 3 are three levels; 4 left 1 before 1 itself left 0, so it shares only with 0.
TREE = [(None, 0, 1.0), (0, 4, 0.0), (0, 2, 1.0), (2, 4, 0.0), (1, 3, 0.0)]
THIRD = 1 / 3
#      the value of the piece that each decision lies in, of the piece before, and how many go through; nan where another row drew it
NAN = float("nan")
VALUE = [
    [0.4, 0.4, THIRD, 0.5, 1.0, 1.0],
    [NAN, NAN, NAN, NAN, 0.0, 0.0],
    [NAN, NAN, 0.5, 0.5, 1.0, 1.0],
    [NAN, NAN, NAN, NAN, 0.0, 0.0],
    [NAN, NAN, NAN, 0.0, 0.0, 0.0],
]
BEFORE = [
    [0.4, 0.4, 0.4, THIRD, 0.5, 0.5],
    [NAN, NAN, NAN, NAN, 0.5, 0.5],
    [NAN, NAN, 0.4, 0.4, 0.5, 0.5],
    [NAN, NAN, NAN, NAN, 0.5, 0.5],
    [NAN, NAN, NAN, THIRD, THIRD, THIRD],
]
THROUGH = [[5, 5, 3, 2, 1, 1], [1] * 6, [1, 1, 2, 2, 1, 1], [1] * 6, [1] * 6]


def row(sample, parent=None, taken=0, score=None, length=6):
    return made.rollout(
        sample=sample,
        decisions=Tokens.row([1], [2] * length),
        mask_S=torch.arange(length) >= taken,
        fork=None if parent is None else (parent, taken),
        score=score,
    )


def tree():
    return Group.of(3, made.TASK, [row(i, parent, taken, score) for i, (parent, taken, score) in enumerate(TREE)])


def test_three_levels_by_hand():
    batch = pack([tree()])
    value, before, through = (torch.tensor(table) for table in (VALUE, BEFORE, THROUGH))
    assert batch.mask_NS.equal(~value.isnan()), "each decision counts in the row that drew it alone"
    assert batch.parent_N.tolist() == [-1, 0, 0, 2, 1] and batch.fork_N.tolist() == [0, 4, 2, 4, 3]

    def close(found, expected):
        torch.testing.assert_close(found, expected.nan_to_num(), rtol=0, atol=1e-6)

    close(LeafMean()(batch), value - 0.4)
    close(LeafMean(baseline="parent")(batch), value - before)
    treerl = LeafMean(baseline="both", damped=True)
    close(treerl(batch), (2 * value - 0.4 - before) / through.sqrt())
    order = torch.tensor([3, 4, 0, 2, 1])
    close(treerl(batch.select(order)), ((2 * value - 0.4 - before) / through.sqrt())[order])


def by_paths(forks, returns, length):
    """The docstring's equation from whole paths: each decision known by the row that drew it and its place, and no tree at all."""
    paths = []
    for row, (parent, taken) in enumerate(forks):
        paths.append(
            [*([] if parent is None else paths[parent][:taken]), *((row, place) for place in range(taken, length))]
        )
    everyone = frozenset(range(len(forks)))
    holders = {node: frozenset(i for i in everyone if node in paths[i]) for path in paths for node in path}
    value, before = (np.zeros((len(forks), length)) for _ in range(2))
    for path in paths:
        piece, last = everyone, np.mean(returns)
        for at, node in enumerate(path):
            # A piece ends where those that go through change, and where another row begins, for a row may end just there.
            if at == 0 or holders[node] != piece or node[0] != path[at - 1][0]:
                last, piece = np.mean([returns[i] for i in piece]), holders[node]
            value[node], before[node] = np.mean([returns[i] for i in holders[node]]), last
    return value, before


@pytest.mark.parametrize("seed", range(20))
def test_trees_drawn_by_lot(seed):
    """Three levels and more. A branch of a branch that left before its own parent did cuts the trunk where it left, and not again."""
    random, length = np.random.default_rng(seed), 8
    forks = [(None, 0)] + [(int(random.integers(i)), int(random.integers(1, length))) for i in range(1, 7)]
    returns = random.random(len(forks)).round(3)
    rows = [row(i, parent, taken, float(returns[i]), length) for i, (parent, taken) in enumerate(forks)]
    batch = pack([Group.of(0, made.TASK, rows)])
    value, before = (torch.tensor(x, dtype=torch.float32) for x in by_paths(forks, returns, length))
    expected = {"root": value - returns.mean(), "parent": value - before, "both": 2 * value - returns.mean() - before}
    for baseline, apart in expected.items():
        torch.testing.assert_close(LeafMean(baseline=baseline)(batch), apart.float() * batch.mask_NS, rtol=0, atol=1e-6)


def test_a_parent_that_is_gone_leaves_its_branches_their_own():
    """Without the trunk nothing is known of who shared it: each branch is a leaf below the root."""
    whole = tree()
    batch = pack([whole.keep([whole.rollouts[i] for i in (1, 2, 3)])])
    assert batch.parent_N.tolist() == [-1, -1, 1]
    expected = torch.tensor([[0, 0, 0, 0, -THIRD, -THIRD], [0, 0, 0.5 - THIRD, 0.5 - THIRD, 1 - THIRD, 1 - THIRD]])
    torch.testing.assert_close(LeafMean()(batch)[:2], expected)
    assert pack([whole]).select(torch.tensor([4, 2])).parent_N.tolist() == [-1, -1]


def test_without_splits_it_is_group_centered():
    batch = pack(
        [Group.of(0, made.TASK, [row(i, score=score, length=3 + i) for i, score in enumerate((1.0, 0.0, 0.5))])]
    )
    for baseline, times in (("root", 1), ("parent", 1), ("both", 2)):
        torch.testing.assert_close(LeafMean(baseline=baseline, damped=True)(batch), times * GroupCentered()(batch))


def test_along_a_path_differences_add_up():
    batch = pack([tree()])
    piece = LeafMean(baseline="parent")(batch)
    # 3's path: two decisions of 0, then of 2, then its own; one of each piece.
    torch.testing.assert_close(piece[0, 0] + piece[2, 2] + piece[3, 4], torch.tensor(0.0 - 0.4))


def test_equal_returns_and_a_lone_rollout_teach_nothing():
    equal = Group.of(0, made.TASK, [row(i, parent, taken, 0.3) for i, (parent, taken, _) in enumerate(TREE)])
    for group in (equal, Group.of(0, made.TASK, [row(0, score=0.7)])):
        for baseline in ("root", "parent", "both"):
            assert (LeafMean(baseline=baseline)(pack([group])) == 0).all()


def test_an_episode_of_several_rows_is_one_leaf():
    """The first episode rewrote its context once; its rows share what it earned, and the group's mean counts it once."""
    first = Episode(rows=(row(0, score=1.0), row(0, score=1.0, length=4)))
    batch = pack([Group(index=0, task=made.TASK, episodes=(first, Episode.of(row(1, score=0.0))))])
    assert batch.episode_N.tolist() == [0, 0, 1]
    expected = torch.tensor([[0.5], [0.5], [-0.5]]) * batch.mask_NS
    torch.testing.assert_close(LeafMean()(batch), expected)
    torch.testing.assert_close(GroupCentered().of_rows(batch), expected)
    assert GroupCentered()(batch)[0, 0] == pytest.approx(1 / 3), "over rows the mean would be two thirds"
