"""The tree of test_leaf_mean.py, normalised by hand; trees drawn by lot from their paths alone; and what the docstring reduces to."""

import sys
from pathlib import Path

import made
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from test_leaf_mean import TREE, VALUE, by_paths, row, tree

from gimbal.advantages import GroupNormalized, NodeNormalized
from gimbal.dataflow.packing import pack
from gimbal.records import Episode, Group


def normalised(value_NS):
    """Over those of each column that are numbers."""
    value_NS = np.asarray(value_NS, dtype=float)
    count, mean = (~np.isnan(value_NS)).sum(0), np.nanmean(value_NS, 0)
    spread = np.sqrt(np.nansum((value_NS - mean) ** 2, 0) / np.maximum(count - 1, 1))
    found = (value_NS - mean) / (spread + 1e-6)
    return torch.tensor(np.nan_to_num(found), dtype=torch.float32)


def test_a_tree_by_hand():
    batch = pack([tree()])
    found = NodeNormalized()(batch)
    torch.testing.assert_close(found, normalised(VALUE), rtol=0, atol=2e-5)
    # At place 2 two nodes, of values 1/3 (below them a third of 1, 0, 0) and 1/2: the one above the other by their deviation.
    assert found[2, 2] == pytest.approx(2**-0.5, abs=1e-4) and found[0, 2] == pytest.approx(-(2**-0.5), abs=1e-4)
    assert (found[:, :2] == 0).all(), "one node has nothing to compare with"
    order = torch.tensor([3, 4, 0, 2, 1])
    torch.testing.assert_close(NodeNormalized()(batch.select(order)), found[order])


@pytest.mark.parametrize("seed", range(20))
def test_trees_drawn_by_lot(seed):
    random, length = np.random.default_rng(seed), 8
    forks = [(None, 0), (None, 0)] + [(int(random.integers(i)), int(random.integers(1, length))) for i in range(2, 8)]
    returns = random.random(len(forks)).round(3)
    rows = [row(i, parent, taken, float(returns[i]), length) for i, (parent, taken) in enumerate(forks)]
    other = Group.of(1, made.TASK, [row(i, score=float(i), length=length) for i in range(3)])
    batch = pack([Group.of(0, made.TASK, rows), other])
    value, _ = by_paths(forks, returns, length)
    own = np.array([[place >= taken for place in range(length)] for _, taken in forks])
    found = NodeNormalized()(batch)
    torch.testing.assert_close(found[:8], normalised(np.where(own, value, np.nan)), rtol=0, atol=1e-4)
    torch.testing.assert_close(found[8:, 0], torch.tensor([-1.0, 0.0, 1.0]), rtol=0, atol=1e-5)


def test_without_splits_it_is_group_normalized():
    scores = (1.0, 0.0, 0.5, 0.25)
    groups = [Group.of(g, made.TASK, [row(i, score=s * (g + 1)) for i, s in enumerate(scores)]) for g in range(2)]
    batch = pack(groups)
    torch.testing.assert_close(NodeNormalized()(batch), GroupNormalized()(batch))


def test_equal_returns_a_lone_rollout_and_a_lone_node_teach_nothing():
    equal = Group.of(0, made.TASK, [row(i, parent, taken, 0.3) for i, (parent, taken, _) in enumerate(TREE)])
    for group in (equal, Group.of(0, made.TASK, [row(0, score=0.7)])):
        assert (NodeNormalized()(pack([group])) == 0).all()


def test_a_parent_that_is_gone_leaves_its_branches_their_own():
    whole = tree()
    batch = pack([whole.keep([whole.rollouts[i] for i in (1, 2, 3)])])
    nan = float("nan")
    values = [[nan] * 4 + [0.0] * 2, [nan] * 2 + [0.5, 0.5, 1.0, 1.0], [nan] * 4 + [0.0] * 2]
    torch.testing.assert_close(NodeNormalized()(batch)[:, 2:], normalised(np.array(values)[:, 2:]), rtol=0, atol=2e-5)


def test_an_episode_of_several_rows_is_one_leaf():
    first = Episode(rows=(row(0, score=1.0), row(0, score=1.0)))
    batch = pack([Group(index=0, task=made.TASK, episodes=(first, Episode.of(row(1, score=0.0))))])
    found = NodeNormalized()(batch)
    assert (found[0] > 0).all() and (found[2] < 0).all() and torch.equal(found[0], found[1])
