"""Merged steps: which are equal, what they get, and the limits."""

import dataclasses
from dataclasses import replace

import pytest
import torch

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.estimators.leave_one_out import LeaveOneOut
from gimbal.advantages.shapings.edge_averaged import EdgeAveraged
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
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


def test_reduces_to_the_host_where_no_steps_are_equal():
    b = batch([[1, 2], [3, 4]], [0, 1], [1.0, -1.0])
    assert torch.equal(EdgeAveraged()(b), b.advantage_NS)
    unknown = dataclasses.replace(b, facts={})
    assert torch.equal(EdgeAveraged()(unknown), b.advantage_NS)
    x = torch.tensor([[-0.1, -0.2], [-0.3, -0.4]], dtype=torch.float64).requires_grad_()
    results = []
    for advantage_NS in (EdgeAveraged()(b), b.advantage_NS):
        host = dataclasses.replace(b, proximal_NS=x.detach() + 0.1, advantage_NS=advantage_NS)
        loss_NS = ClippedRatio()(x, host).loss_NS
        results.append((loss_NS.detach(), torch.autograd.grad(loss_NS.sum(), x)[0]))
    for ours, plain in zip(*results, strict=True):
        close(ours, plain)


@pytest.mark.parametrize(
    ("moved", "weights", "same"), [(0.0, (1, 1), True), (0.3, (1, 1), False), (0.0, (1, 2), False)]
)
def test_common_beginnings_at_a_ratio_of_1_and_equal_weights_have_the_gradient_of_the_host(moved, weights, same):
    b = batch([[1, 2], [1, 3]], [0, 1], [1.0, -0.5])
    shared, own = torch.zeros((), dtype=torch.float64, requires_grad=True), torch.zeros(2, dtype=torch.float64)
    x = torch.stack([torch.stack([shared, own[0]]), torch.stack([shared, own[1]])])  # one step, one log-probability
    gradients = []
    for advantage_NS in (EdgeAveraged()(b), b.advantage_NS):
        host = replace(b, proximal_NS=x.detach() - moved, advantage_NS=advantage_NS)
        loss = (ClippedRatio()(x, host).loss_NS * torch.tensor(weights)[:, None]).sum()
        gradients.append(float(torch.autograd.grad(loss, shared, retain_graph=True)[0]))
    assert (abs(gradients[0] - gradients[1]) < 1e-9) == same


def test_groups_are_kept_apart():
    b = batch([[1], [1]], [0], [1.0, -1.0], group=[0, 5])
    assert torch.equal(EdgeAveraged()(b), b.advantage_NS)


def shared_first_step(estimator):
    shared = batch([[1, 2, 3], [1, 2, 4], [1, 2, 5]], [0, 0, 1], [0.0] * 3)
    reward_NS = torch.tensor([[0.0, 0, 1], [0, 0, 0.3], [0, 0, 0]], dtype=torch.float64)
    shared = dataclasses.replace(shared, reward_NS=reward_NS)
    return dataclasses.replace(shared, advantage_NS=estimator(shared))


@pytest.mark.parametrize("estimator", [GroupNormalized(), GroupCentered(), LeaveOneOut()])
def test_reduces_to_0_where_all_rollouts_are_identical(estimator):
    shared = shared_first_step(estimator)
    identical = dataclasses.replace(shared, facts={"label_NS": torch.ones(3, 3, dtype=torch.long)})
    close(EdgeAveraged()(identical), torch.zeros(3, 3))


@pytest.mark.parametrize("estimator", [GroupNormalized(), GroupCentered(), LeaveOneOut()])
def test_reduces_to_0_on_a_first_step_that_the_whole_group_shares(estimator):
    shared = shared_first_step(estimator)
    result = EdgeAveraged()(shared)
    close(result[:, :2], torch.zeros(3, 2))
    assert torch.equal(result[:, 2], shared.advantage_NS[:, 2])


def test_reduces_to_the_prefix_tree_with_the_whole_history_as_window():
    label = [[1, 2, 3, 4], [1, 2, 3, 5], [9, 2, 3, 4]]
    b = batch(label, [0, 1, 2, 3], [6.0, 2.0, -2.0])
    close(EdgeAveraged(window=-1)(b), [[4, 4, 4, 6], [4, 4, 4, 2], [-2] * 4])
    close(EdgeAveraged(window=1)(b), [[4, 4, 2, 2], [4, 4, 2, 2], [-2, -2, 2, 2]])
    g = torch.Generator().manual_seed(0)
    label_NS = torch.randint(0, 2, (6, 4), generator=g)
    many = batch(label_NS.tolist(), [0, 1, 2, 3], torch.randn(6, generator=g).tolist())
    tree = [
        [many.advantage_NS[(label_NS[:, : s + 1] == label_NS[n, : s + 1]).all(-1), s].mean() for s in range(4)]
        for n in range(6)
    ]
    close(EdgeAveraged(window=-1)(many), torch.tensor(tree))


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
