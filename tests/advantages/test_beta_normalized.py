"""Beta normalisation: the densities it reduces to, its moments by hand, and its edges."""

import dataclasses
import math

import pytest
import torch

from gimbal.advantages.estimators.beta_normalized import BetaNormalized
from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.records import TrainBatch


def wins(*counts, of=4):
    """Groups with so many successes each."""
    reward = torch.tensor([float(i < count) for count in counts for i in range(of)], dtype=torch.float64)
    return TrainBatch(
        mask_NS=torch.ones(len(reward), 1, dtype=torch.bool),
        reward_NS=reward[:, None],
        group_N=torch.arange(len(counts)).repeat_interleave(of),
    )


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b), atol=1e-6, rtol=1e-6, check_dtype=False)


@pytest.mark.parametrize("counts", [(1,), (3,), (2, 2, 2), (1, 1)])
def test_reduces_to_group_centered_with_alpha_and_beta_1(counts):
    b = wins(*counts)
    close(BetaNormalized()(b), GroupCentered()(b))
    assert BetaNormalized().report(b) == {"beta/alpha": 1, "beta/beta": 1, "beta/max_weight": 1}


def test_reduces_to_group_normalized_times_pi_over_8_with_alpha_and_beta_3_halves():
    """p = 1/4, 1/2, 3/4: mean 1/2 and variance 1/16, so a = b = 3/2 and alpha = beta = 3/2."""
    b = wins(1, 2, 3)
    assert BetaNormalized().report(b)["beta/alpha"] == pytest.approx(1.5)
    close(BetaNormalized()(b), GroupNormalized(ddof=0, eps=0.0)(b) * math.pi / 8)


def test_by_hand_for_skewed_success_rates():
    """p = 1/4, 1/4, 1/2: m = 1/3, v = 1/48; a = 29/9, b = 58/9; alpha = 56/27, beta = 85/27."""
    b = wins(1, 1, 2)
    report = BetaNormalized().report(b)
    alpha, beta = 1 + 29 / 27, 1 + 58 / 27
    assert report["beta/alpha"] == pytest.approx(alpha) and report["beta/beta"] == pytest.approx(beta)
    log_norm = math.lgamma(alpha) + math.lgamma(beta) - math.lgamma(alpha + beta)
    f = math.exp((alpha - 1) * math.log(0.25) + (beta - 1) * math.log(0.75) - log_norm)
    close(BetaNormalized()(b)[:4, 0], torch.tensor([0.75, -0.25, -0.25, -0.25]) / f)


def test_solved_and_hopeless_groups_give_0():
    a = BetaNormalized()(wins(0, 4, 2, 1, 3))
    assert (a[:8] == 0).all() and (a[8:] != 0).all() and torch.isfinite(a).all()
    assert (BetaNormalized()(wins(4, 4)) == 0).all()
    alone = dataclasses.replace(wins(1, 2, 3), group_N=torch.arange(12))
    assert (BetaNormalized()(alone) == 0).all()


def test_rewards_are_mapped_to_0_and_1():
    b = wins(1, 2, 3)
    scaled = dataclasses.replace(b, reward_NS=b.reward_NS * 5 - 3)
    close(BetaNormalized()(scaled), BetaNormalized()(b))


def test_several_rewards_are_averaged_each_with_its_own_normaliser():
    first, second = wins(1, 2, 3), wins(1, 1, 2)
    both = first.with_columns({"score/right": first.return_N, "score/form": second.return_N})
    mean = (BetaNormalized()(first) + BetaNormalized()(second)) / 2
    close(BetaNormalized(rewards=("right", "form"))(both), mean)
    close(BetaNormalized(rewards=("form",))(both), BetaNormalized()(second))


def test_the_weight_is_cut():
    b = wins(*[64] * 60, 1, of=128)  # nearly all p equal: a peaked density, and one group far off
    assert BetaNormalized().report(b)["beta/max_weight"] > 100
    assert BetaNormalized(max_weight=2.0).report(b)["beta/max_weight"] == 2
    assert float(BetaNormalized(max_weight=2.0)(b).abs().max()) <= 2
