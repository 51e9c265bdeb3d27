"""Cliffs of the reward-policy map: in known environments, and between the rollouts of a group."""

import dataclasses

import pytest
import torch

from gimbal.advantages.reward_shaping.cliff_probe import CliffProbe
from gimbal.ops.stability import action_values, cliff, gaps, policy_of
from gimbal.records import TrainBatch

STAY = torch.zeros(2, 2, 2, dtype=torch.float64)
STAY[:, :, 1] = 1.0  # everything leads to the second state, which keeps
TIED = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)


def nudged(by):
    return TIED + torch.tensor([[0.0, by], [0.0, 0.0]])


@pytest.mark.parametrize("by", [1e-6, 1e-3, 1e-1])
def test_with_ties_the_greedy_policy_jumps_however_small_the_change(by):
    found = cliff(STAY, TIED, nudged(by), gamma=0.5)
    assert found.distance == 0.5 and found.slope == pytest.approx(0.5 / by) and found.near == 1.0


def test_a_temperature_makes_the_slope_finite():
    """Near a tie softmax moves by half the difference over 2 alpha, in one of the two states."""
    for alpha in (0.01, 0.1):
        found = cliff(STAY, TIED, nudged(1e-5), gamma=0.5, alpha=alpha)
        assert found.slope == pytest.approx(0.5 / (4 * alpha), rel=1e-3) and found.distance <= found.bound


def test_alpha_to_zero_is_greedy_and_to_infinity_uniform():
    value_SA = torch.tensor([[1.0, 0.3, 0.9], [0.0, 2.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(policy_of(value_SA, 1e-4), policy_of(value_SA), atol=1e-6, rtol=0)
    assert cliff(STAY, TIED, nudged(0.1), gamma=0.5, alpha=1e9).distance < 1e-9
    torch.testing.assert_close(gaps(value_SA), torch.tensor([0.1, 2.0], dtype=torch.float64))
    assert torch.isinf(gaps(value_SA[:, :1])).all()


def test_below_the_gap_the_greedy_policy_stays_and_soft_bounds_hold():
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        transition_SAS = torch.rand(4, 3, 4, generator=g, dtype=torch.float64)
        transition_SAS /= transition_SAS.sum(-1, keepdim=True)
        reward_SA = torch.rand(4, 3, generator=g, dtype=torch.float64)
        smallest = float(gaps(action_values(transition_SAS, reward_SA, 0.8)).min())
        push_SA = 2 * torch.rand(4, 3, generator=g, dtype=torch.float64) - 1
        push_SA *= 0.99 * smallest * (1 - 0.8) / 2 / push_SA.abs().max()
        found = cliff(transition_SAS, reward_SA, reward_SA + push_SA, gamma=0.8)
        assert found.distance == 0 and found.near == 0
        found = cliff(transition_SAS, reward_SA, reward_SA + 10 * push_SA, gamma=0.8, alpha=0.2)
        assert found.distance <= found.bound


def test_values_by_hand():
    value_SA = action_values(STAY, torch.tensor([[1.0, 0.0], [2.0, 0.0]]), 0.5)
    torch.testing.assert_close(value_SA, torch.tensor([[3.0, 2.0], [4.0, 2.0]], dtype=torch.float64))
    soft_SA = action_values(
        STAY, TIED * 0, 0.5, alpha=0.1
    )  # nothing but entropy: alpha log 2 / (1 - gamma), discounted once
    torch.testing.assert_close(soft_SA, torch.full((2, 2), 0.1 * torch.tensor(2.0).double().log().item()).double())
    with pytest.raises(ValueError, match="gamma"):
        action_values(STAY, TIED, 1.0)


def batch(right=(1.0, 1.0, 0.0, 1.0, 0.0, 0.0), brief=(0.5, 0.2, 0.9, 0.1, 0.3, 0.3), groups=(0, 0, 0, 1, 1, 2)):
    reward_NS = torch.zeros(6, 2, dtype=torch.float64)
    reward_NS[:, 0] = torch.tensor(right) + 0.1 * torch.tensor(brief)
    mask_NS = torch.ones(6, 2, dtype=torch.bool)
    facts = {"score/brief": torch.tensor(brief)}
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS, group_N=torch.tensor(groups), facts=facts)


def test_of_two_groups_one_hangs_on_what_was_left_out():
    b = batch()
    probe = CliffProbe(omitted="brief", weight=0.1, alpha=0.05)
    found = probe.report(b)
    assert found["cliff/tied"] == 0.5  # two right ones in the first, one in the second; the lone one does not count
    first = (torch.tensor([1.05, 1.02, 0.09]) / 0.05).softmax(0) - (torch.tensor([1.0, 1.0, 0.0]) / 0.05).softmax(0)
    second = (torch.tensor([1.01, 0.03]) / 0.05).softmax(0) - (torch.tensor([1.0, 0.0]) / 0.05).softmax(0)
    assert found["cliff/moved"] == pytest.approx(float(first.abs().sum() + second.abs().sum()) / 4, abs=1e-6)
    assert torch.equal(probe(b), b.reward_NS)


def test_greedy_and_infinitely_soft_choices():
    turned = batch(brief=(0.2, 0.5, 0.9, 0.1, 0.3, 0.3))
    settings = {"omitted": "brief", "weight": 0.1}
    assert CliffProbe(alpha=0.0, **settings).report(turned)["cliff/moved"] == 0.5
    assert CliffProbe(alpha=0.0, **settings).report(batch())["cliff/moved"] == 0.0
    assert CliffProbe(alpha=float("inf"), **settings).report(turned)["cliff/moved"] == 0.0


def test_with_nothing_left_out_only_ties_are_seen():
    equal = batch(right=(1.0,) * 6, brief=(0.0,) * 6)
    assert CliffProbe().report(equal) == {"cliff/tied": 1.0, "cliff/moved": 0.0}
    assert CliffProbe().report(batch())["cliff/tied"] == 0.0


def test_groups_of_one_and_empty_rows_do_not_count():
    alone = batch(groups=(0, 1, 2, 3, 4, 5))
    assert CliffProbe(omitted="brief").report(alone) == {"cliff/tied": 0.0, "cliff/moved": 0.0}
    empty = dataclasses.replace(batch(), mask_NS=torch.zeros(6, 2, dtype=torch.bool))
    assert CliffProbe(omitted="brief").report(empty) == {"cliff/tied": 0.0, "cliff/moved": 0.0}
    with pytest.raises(ValueError, match="score/long"):
        CliffProbe(omitted="long").report(batch())


@pytest.mark.parametrize("wrong", [{"alpha": -1.0}, {"margin": -1.0}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="CliffProbe"):
        CliffProbe(**wrong)
