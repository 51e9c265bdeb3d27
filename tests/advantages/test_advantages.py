"""Each estimator's limiting cases, as its docstring states them, and golden values by hand."""

import dataclasses
import itertools
import math

import pytest
import torch

from gimbal.advantages import (
    GAE,
    DiscrepancyPenalty,
    GroupCentered,
    GroupNormalized,
    KLReward,
    LeaveOneOut,
    MinimumVarianceCentered,
    ReturnToGo,
    Whitened,
)
from gimbal.controllers import AdaptiveKL, Lagrangian
from gimbal.records import TrainBatch


def outcome(rewards, groups, length=2):
    """Rollouts of equal length with one reward, at the end."""
    reward_NS = torch.zeros(len(rewards), length, dtype=torch.float64)
    reward_NS[:, -1] = torch.tensor(rewards, dtype=torch.float64)
    return TrainBatch(
        mask_NS=torch.ones(len(rewards), length, dtype=torch.bool), reward_NS=reward_NS, group_N=torch.tensor(groups)
    )


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6, check_dtype=False)


def test_group_normalized_by_hand():
    a = GroupNormalized(ddof=1, eps=0.0)(outcome([1, 0, 0, 5, 7], [4, 4, 4, 2, 2]))[:, 0]
    std = math.sqrt(1 / 3)
    close(a, torch.tensor([2 / 3 / std, -1 / 3 / std, -1 / 3 / std, -1 / math.sqrt(2), 1 / math.sqrt(2)]))


@pytest.mark.parametrize("wins", [1, 3, 7])
def test_group_normalized_of_binary_rewards(wins):
    a = GroupNormalized(ddof=0, eps=0.0)(outcome([1] * wins + [0] * (8 - wins), [0] * 8))[:, 0]
    p = wins / 8
    close(a[0], torch.tensor(math.sqrt((1 - p) / p)))
    close(a[-1], torch.tensor(-math.sqrt(p / (1 - p))))


def test_leave_one_out_is_g_over_g_minus_1_times_group_centered():
    b = outcome([1, 0, 3, 2, 2.5], [0, 0, 0, 1, 1])
    scale = torch.tensor([3 / 2, 3 / 2, 3 / 2, 2, 2])[:, None]
    close(LeaveOneOut()(b), GroupCentered()(b) * scale)


def test_leave_one_out_is_unbiased_by_enumeration():
    """Two rollouts of a 3-armed bandit, all nine outcomes: the expected gradient is the exact one; GroupCentered's is half of it."""
    logits = torch.tensor([0.3, -0.5, 0.1], dtype=torch.float64, requires_grad=True)
    reward = torch.tensor([1.0, 0.2, 3.0], dtype=torch.float64)
    p = logits.softmax(-1)
    exact = torch.autograd.grad((p * reward).sum(), logits, retain_graph=True)[0]
    for estimator, share in ((LeaveOneOut(), 1.0), (GroupCentered(), 0.5)):
        total = torch.zeros(3, dtype=torch.float64)
        for first, second in itertools.product(range(3), repeat=2):
            arms = torch.tensor([first, second])
            a = estimator(outcome(reward[arms].tolist(), [0, 0], length=1))[:, 0]
            score = torch.autograd.grad((logits.log_softmax(-1)[arms] * a).mean(), logits)[0]
            total += (p[first] * p[second]).detach() * score
        close(total, share * exact)


def episode(terminated):
    return TrainBatch(
        mask_NS=torch.tensor([[True, True, True]]),
        reward_NS=torch.tensor([[1.0, 2.0, 4.0]]),
        value_NS=torch.tensor([[0.5, 1.0, 2.0]]),
        bootstrap_N=torch.tensor([0.0 if terminated else 10.0]),
    )


def test_gae_by_hand():
    a = GAE(gamma=0.5, lam=0.5)(episode(terminated=True))
    d = [1 + 0.5 * 1 - 0.5, 2 + 0.5 * 2 - 1, 4 - 2]
    close(a, torch.tensor([[d[0] + 0.25 * d[1] + 0.0625 * d[2], d[1] + 0.25 * d[2], d[2]]]))


def test_gae_bootstraps_where_an_episode_was_truncated():
    a = GAE(gamma=0.5, lam=0.5)(episode(terminated=False))
    close(a[0, 2], torch.tensor(4 + 0.5 * 10 - 2.0))


def test_gae_with_lambda_1_is_the_return_minus_the_value():
    b = episode(terminated=True)
    returns = torch.tensor([[1 + 0.9 * 2 + 0.81 * 4, 2 + 0.9 * 4, 4.0]])
    close(GAE(gamma=0.9, lam=1.0)(b), returns - b.value_NS)
    close(ReturnToGo(gamma=0.9)(b), returns)


def test_gae_with_lambda_0_is_the_one_step_error():
    close(GAE(gamma=0.9, lam=0.0)(episode(True)), torch.tensor([[1 + 0.9 - 0.5, 2 + 1.8 - 1, 4.0 - 2]]))


def test_gae_skips_what_the_policy_did_not_decide():
    gap = TrainBatch(
        mask_NS=torch.tensor([[True, False, True, True]]),
        reward_NS=torch.tensor([[1.0, 99.0, 2.0, 4.0]]),
        value_NS=torch.tensor([[0.5, 99.0, 1.0, 2.0]]),
        bootstrap_N=torch.zeros(1),
    )
    close(GAE()(gap)[gap.mask_NS], GAE()(episode(True))[0])


def test_return_to_go_of_an_outcome_is_the_outcome():
    close(ReturnToGo()(outcome([3, -1], [0, 1], length=4)), torch.tensor([[3.0], [-1.0]]).expand(2, 4))


def test_whitening_after_group_centering_of_one_group_is_group_normalized():
    b = outcome([1, 0, 0, 1, 1], [0] * 5)
    whitened = Whitened(eps=0.0)(dataclasses.replace(b, advantage_NS=GroupCentered()(b)))
    close(whitened, GroupNormalized(ddof=0, eps=0.0)(b))


@pytest.mark.parametrize(
    "advantage", [GroupNormalized(eps=0.0), MinimumVarianceCentered(scaled=True, eps=0.0), Whitened(eps=0.0)]
)
def test_without_eps_equal_scores_and_a_lone_rollout_are_0_too(advantage):
    """It was 0 / 0."""
    b = TrainBatch(
        mask_NS=torch.ones(4, 2, dtype=torch.bool),
        reward_NS=torch.full((4, 2), 0.5),
        advantage_NS=torch.full((4, 2), 0.5),
        group_N=torch.tensor([0, 0, 0, 1]),
        proximal_NS=torch.zeros(4, 2),
        behavior_NS=torch.zeros(4, 2),
        score_norm_N=torch.ones(4),
    )
    assert (advantage(b) == 0).all()


def test_whitening_counts_only_what_counts():
    mask_NS = torch.tensor([[True, True, False]])
    a = Whitened()(TrainBatch(mask_NS=mask_NS, advantage_NS=torch.tensor([[1.0, 3.0, 1e6]])))
    close(a, torch.tensor([[-1.0, 1.0, 0.0]]))


@pytest.mark.parametrize("value", [0.1, 1 / 3, -0.7])
@pytest.mark.parametrize("n", [1, 3, 7, 200])
def test_whitening_equal_advantages_gives_0(value, n):
    """Exactly: the rounding error of a mean, divided by itself, would be an advantage of about 1."""
    b = TrainBatch(mask_NS=torch.ones(n, 5, dtype=torch.bool), advantage_NS=torch.full((n, 5), value))
    assert (Whitened()(b) == 0).all()


def test_a_baseline_lowers_the_variance_and_leaves_the_gradient():
    """Rewards around 10, all pairs of a 3-armed bandit: same expected gradient, variance at least tenfold lower."""
    logits = torch.tensor([0.3, -0.5, 0.1], dtype=torch.float64, requires_grad=True)
    reward = torch.tensor([10.0, 9.2, 11.0], dtype=torch.float64)
    p = logits.softmax(-1)
    moments = {}
    for estimator in (ReturnToGo(), LeaveOneOut()):
        mean, square = torch.zeros(3, dtype=torch.float64), 0.0
        for pair in itertools.product(range(3), repeat=2):
            arms = torch.tensor(pair)
            a = estimator(outcome(reward[arms].tolist(), [0, 0], length=1))[:, 0]
            score = torch.autograd.grad((logits.log_softmax(-1)[arms] * a).mean(), logits)[0]
            chance = p[arms].prod().item()
            mean += chance * score
            square += chance * score.square().sum().item()
        moments[type(estimator)] = mean, square - mean.square().sum().item()
    (plain, spread), (centred, narrow) = moments.values()
    close(plain, centred)
    assert narrow < spread / 10


def test_discrepancy_penalty_by_hand_and_in_its_limits():
    b = TrainBatch(
        mask_NS=torch.ones(1, 2, dtype=torch.bool),
        advantage_NS=torch.tensor([[1.0, -1.0]]),
        proximal_NS=torch.tensor([[0.5, 0.9]]).log(),
        behavior_NS=torch.tensor([[0.4, 0.9]]).log(),
    )
    close(DiscrepancyPenalty(strength=2.0)(b), torch.tensor([[1 - 0.2, -1.0]]))
    close(DiscrepancyPenalty(strength=2.0, threshold=0.05)(b), torch.tensor([[1 - 0.1, -1.0]]))
    assert torch.equal(DiscrepancyPenalty(strength=0.0)(b), b.advantage_NS)
    equal = dataclasses.replace(b, behavior_NS=b.proximal_NS)
    assert torch.equal(DiscrepancyPenalty()(equal), b.advantage_NS)


def test_kl_reward_by_hand_and_in_its_limits():
    b = dataclasses.replace(
        outcome([1.0], [0]), proximal_NS=torch.tensor([[-1.0, -2.0]]), reference_NS=torch.tensor([[-1.5, -1.0]])
    )
    close(KLReward(coef=0.1)(b), torch.tensor([[-0.05, 1.1]]))
    assert torch.equal(KLReward(coef=0.0)(b), b.reward_NS)


def test_lagrangian_by_hand_and_in_its_limits():
    rule = Lagrangian(limit=0.1, rate=2.0, initial=0.3)
    assert rule.update({"value": 0.3}, {rule.signal: 0.15})["value"] == pytest.approx(0.4)
    state = rule.init()
    for _ in range(10):
        state = rule.update(state, {rule.signal: 0.0})
    assert state["value"] == 0.0
    still = dataclasses.replace(rule, rate=0.0)
    assert still.update(still.init(), {rule.signal: 9.0})["value"] == 0.3


def test_adaptive_kl_by_hand_and_in_its_limits():
    rule = AdaptiveKL(target=0.01, gain=0.5, initial=0.1)
    assert rule.update(rule.init(), {rule.signal: 0.011})["value"] == pytest.approx(0.1 * 1.05)
    assert rule.update(rule.init(), {rule.signal: 1.0})["value"] == pytest.approx(0.1 * 1.1)
    assert rule.update(rule.init(), {rule.signal: 0.01})["value"] == 0.1
