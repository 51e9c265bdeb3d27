"""Merged steps: which are equal, what they get, and the limits."""

import dataclasses
from dataclasses import replace

import pytest
import torch

from gimbal.advantages.edge_averaged import EdgeAveraged
from gimbal.advantages.group_centered import GroupCentered
from gimbal.advantages.group_normalized import GroupNormalized
from gimbal.policies.control import Steps
from gimbal.policies.token import Tokens
from gimbal.records import TrainBatch


def batch(label, turn, advantage, group=None, mask=None):
    label_NS = torch.tensor(label)
    n, s = label_NS.shape
    a = torch.tensor(advantage, dtype=torch.float64)
    mask_NS = torch.ones(n, s, dtype=torch.bool) if mask is None else torch.tensor(mask)
    return TrainBatch(
        mask_NS=mask_NS,
        advantage_NS=(a if a.ndim == 2 else a[:, None].expand(n, s)) * mask_NS,
        turn_NS=torch.tensor(turn).expand(n, s),
        group_N=torch.zeros(n, dtype=torch.long) if group is None else torch.tensor(group),
        facts={"label_NS": label_NS},
    )


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=0)


def test_by_hand():
    b = batch([[1, 2, 5, 6], [1, 2, 5, 7], [1, 3, 5, 6]], [0, 0, 1, 1], [3.0, 1.0, -4.0])
    close(EdgeAveraged()(b), [[2, 2, 3, 3], [2, 2, 1, 1], [-4] * 4])  # step 1 differs in context or content
    close(EdgeAveraged(window=0)(b), [[2, 2, -0.5, -0.5], [2, 2, 1, 1], [-4, -4, -0.5, -0.5]])


def test_no_equal_steps_give_the_advantage_as_it_is():
    b = batch([[1, 2], [3, 4]], [0, 1], [1.0, -1.0])
    assert torch.equal(EdgeAveraged()(b), b.advantage_NS)
    unknown = dataclasses.replace(b, facts={})
    assert torch.equal(EdgeAveraged()(unknown), b.advantage_NS)


def test_groups_are_kept_apart():
    b = batch([[1], [1]], [0], [1.0, -1.0], group=[0, 5])
    assert torch.equal(EdgeAveraged()(b), b.advantage_NS)


@pytest.mark.parametrize("estimator", [GroupNormalized(), GroupCentered()])
def test_identical_rollouts_and_a_step_all_share_get_0(estimator):
    shared = batch([[1, 2, 3], [1, 2, 4], [1, 2, 5]], [0, 0, 1], [0.0] * 3)
    reward_NS = torch.tensor([[0.0, 0, 1], [0, 0, 0.3], [0, 0, 0]], dtype=torch.float64)
    shared = dataclasses.replace(shared, reward_NS=reward_NS)
    shared = dataclasses.replace(shared, advantage_NS=estimator(shared))
    result = EdgeAveraged()(shared)
    close(result[:, :2], torch.zeros(3, 2))
    assert torch.equal(result[:, 2], shared.advantage_NS[:, 2])
    identical = dataclasses.replace(shared, facts={"label_NS": torch.ones(3, 3, dtype=torch.long)})
    close(EdgeAveraged()(identical), torch.zeros(3, 3))


def test_the_whole_history_as_window_merges_common_beginnings_only():
    label = [[1, 2, 3, 4], [1, 2, 3, 5], [9, 2, 3, 4]]
    b = batch(label, [0, 1, 2, 3], [6.0, 2.0, -2.0])
    close(EdgeAveraged(window=-1)(b), [[4, 4, 4, 6], [4, 4, 4, 2], [-2] * 4])
    close(EdgeAveraged(window=1)(b), [[4, 4, 2, 2], [4, 4, 2, 2], [-2, -2, 2, 2]])


def test_what_varies_within_a_step_stays():
    b = batch([[1, 2], [1, 2]], [0, 0], [[3.0, 1.0], [0.0, 0.0]])
    close(EdgeAveraged()(b), [[2, 0], [1, 1]])


def test_observations_tell_steps_apart_and_stay_masked():
    mask = [[True, False, True], [True, False, True]]
    b = batch([[1, 8, 2], [1, 9, 2]], [0, 0, 1], [1.0, 0.0], mask=mask)
    close(EdgeAveraged()(b), [[1, 0, 1], [0, 0, 0]])
    same = batch([[1, 8, 2], [1, 8, 2]], [0, 0, 1], [1.0, 0.0], mask=mask)
    close(EdgeAveraged()(same), [[0.5, 0, 0.5], [0.5, 0, 0.5]])


def test_a_loop_counts_each_time_or_once():
    b = batch([[1, 1, 1], [1, 2, 3]], [0, 1, 2], [4.0, 0.0])
    close(EdgeAveraged(window=0)(b), [[3, 3, 3], [3, 0, 0]])
    close(EdgeAveraged(window=0, once=True)(b), [[2, 2, 2], [2, 0, 0]])


def test_single_decisions_as_steps():
    b = batch([[1, 2], [1, 3]], [0, 0], [1.0, -1.0])
    close(EdgeAveraged(level="token")(b), [[0, 1], [0, -1]])


def test_families_label_their_decisions():
    tokens = Tokens.stack([Tokens.row([7, 7], [1, 2, 3]), Tokens.row([7], [4])])
    assert tokens.label_NS[0].tolist() == [1, 2, 3] and tokens.label_NS[1, 0] == 4
    seen = torch.tensor([[[0.0], [1.0], [0.0]]])
    steps = Steps(
        observation_NSO=seen,
        action_NSA=torch.tensor([[[0], [0], [1]]]),
        final_NO=seen[:, 0],
        length_N=torch.tensor([3]),
        terminated_N=torch.tensor([True]),
    )
    assert len(set(steps.label_NS[0].tolist())) == 3
    twice = replace(steps, action_NSA=torch.zeros(1, 3, 1, dtype=torch.long))
    assert twice.label_NS[0, 0] == twice.label_NS[0, 2] != twice.label_NS[0, 1]
    b = dataclasses.replace(batch([[0, 0, 0]] * 2, [0, 1, 2], [1.0, -1.0]), facts={}, decisions=tokens)
    assert EdgeAveraged()(b).shape == (2, 3)


def test_unfit_windows_are_refused():
    with pytest.raises(ValueError, match="window is -2"):
        EdgeAveraged(window=-2)
