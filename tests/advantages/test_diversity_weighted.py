"""DiversityWeighted by hand."""

import torch

from gimbal.advantages import DiversityWeighted
from gimbal.records import TrainBatch


def shaped(advantage_N, novelty_N, group_N):
    advantage_NS = torch.tensor(advantage_N)[:, None].expand(-1, 2)
    mask_NS = torch.ones(len(group_N), 2, dtype=torch.bool)
    batch = TrainBatch(
        mask_NS=mask_NS,
        advantage_NS=advantage_NS,
        group_N=torch.tensor(group_N),
        facts={"score/novelty": torch.tensor(novelty_N)},
    )
    return DiversityWeighted()(batch)[:, 0].tolist()


def test_good_samples_unlike_the_others_gain_and_bad_ones_stay():
    assert shaped([1.0, 1.0, -2.0, 3.0], [1.0, 3.0, 8.0, 0.5], [0, 0, 0, 1]) == [0.25, 0.75, -2.0, 3.0]


def test_where_all_are_as_far_apart_or_alike_nothing_changes():
    assert shaped([1.0, -1.0], [2.0, 2.0], [0, 0]) == [1.0, -1.0]
    assert shaped([1.0, -1.0], [0.0, 0.0], [0, 0]) == [1.0, -1.0]
