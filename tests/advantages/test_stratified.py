"""Strata within a group: the blend, its two ends, and the decomposition of the variance."""

import dataclasses

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.estimators.stratified import Stratified
from gimbal.records import TrainBatch

REWARD = [1.0, 0, 0.5, 3, 2, 1, 0, 4]
GROUP = [0, 0, 0, 0, 0, 2, 2, 2]
TURNS = [0, 0, 1, 1, 1, 0, 1, 1]


def batch(reward=REWARD, group=GROUP, turns=TURNS):
    n = len(reward)
    mask_NS = torch.ones(n, 3, dtype=torch.bool)
    mask_NS[:, 2] = torch.tensor(turns) > 0
    turn_NS = torch.tensor(turns)[:, None] * torch.tensor([0, 0, 1])
    return TrainBatch(
        mask_NS=mask_NS,
        reward_NS=torch.tensor(reward, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0, 0]),
        turn_NS=turn_NS,
        group_N=torch.tensor(group),
    )


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b), atol=1e-6, rtol=1e-6, check_dtype=False)


def test_by_hand():
    a = Stratified(alpha=1.0, eps=0.0)(batch())[:, 0]
    half = 0.5**0.5
    third = torch.tensor([0.5, 3, 2])
    close(a[:2], [half, -half])
    close(a[2:5], (third - third.mean()) / third.std())
    close(a[5:], [0, -half, half])  # alone in its stratum: 0
    blend = Stratified(alpha=0.25)(batch())
    close(blend, 0.25 * Stratified(alpha=1.0)(batch()) + 0.75 * GroupNormalized()(batch()))


def test_reduces_to_group_normalized_at_alpha_0_and_with_one_stratum():
    assert torch.equal(Stratified(alpha=0.0)(batch()), GroupNormalized()(batch()))
    close(Stratified(alpha=1.0)(batch(turns=[1] * 8)), GroupNormalized()(batch(turns=[1] * 8)))


def test_lone_strata_leave_the_share_of_the_group():
    b = batch().with_columns({"kind": torch.arange(8).float()})
    close(Stratified(strata="kind", alpha=0.7)(b), 0.3 * GroupNormalized()(b))


def test_strata_by_a_fact_are_those_by_turns():
    b = batch().with_columns({"score/searches": torch.tensor(TURNS)})
    close(Stratified(strata="score/searches")(b), Stratified()(batch()))


def test_a_turn_whose_decisions_do_not_count_is_a_turn():
    """A call is a call, whether the answer after it may be trained on or not."""
    b = batch()
    hidden_NS = b.mask_NS & (b.turn_NS == 0)
    assert hidden_NS.sum() < b.mask_NS.sum()
    close(Stratified()(dataclasses.replace(b, mask_NS=hidden_NS)), Stratified()(b) * hidden_NS)


def test_unit_second_moment_with_the_population_deviation():
    a = Stratified(alpha=1.0, ddof=0, eps=0.0)(batch())[:5, 0]
    close(a.square().mean(), 1.0)


def test_the_centred_variance_falls_by_that_between_strata():
    reward, stratum = torch.tensor(REWARD[:5]), torch.tensor(TURNS[:5])
    means = torch.stack([reward[stratum == k].mean() for k in stratum])
    whole = (reward - reward.mean()).square().mean()
    inside = (reward - means).square().mean()
    close(whole - inside, (means - reward.mean()).square().mean())


def test_alpha_1_cannot_see_which_stratum_pays():
    b = batch(reward=[0, 0, 1, 1], group=[0] * 4, turns=[0, 0, 1, 1])
    assert (Stratified(alpha=1.0)(b) == 0).all()
    assert (Stratified(alpha=0.8)(b)[2:, 0] > 0).all()


def test_equal_rewards_and_lone_rollouts():
    assert (Stratified()(batch(reward=[0.25] * 8)) == 0).all()
    assert (Stratified()(batch(group=list(range(8)))) == 0).all()
    alone = dataclasses.replace(batch(), turn_NS=None)
    close(Stratified()(alone), GroupNormalized()(alone))


def test_errors_say_the_way_out():
    with pytest.raises(ValueError, match="0 to 1"):
        Stratified(alpha=1.5)
    with pytest.raises(ValueError, match="Stratified reads score/searches"):
        Stratified(strata="score/searches")(batch())
