"""Decoupled normalisation of several rewards: the collapse it prevents, and what it is with one reward."""

import dataclasses

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.records import TrainBatch


def scored(groups, **rewards):
    n = len(groups)
    total = torch.tensor(list(rewards.values()), dtype=torch.float64).sum(0)
    return TrainBatch(
        mask_NS=torch.ones(n, 1, dtype=torch.bool),
        reward_NS=total[:, None],
        group_N=torch.tensor(groups),
        facts={f"score/{name}": torch.tensor(x, dtype=torch.float64) for name, x in rewards.items()},
    )


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b), atol=1e-6, rtol=1e-6, check_dtype=False)


def test_mixtures_of_rewards_do_not_collapse():
    """Sums (0, 1) and (0, 2) look alike to GRPO; the second group differs in both rewards and is distinguished."""
    b = scored([0, 0, 1, 1], right=[0.0, 1, 0, 1], form=[0.0, 0, 0, 1])
    close(GroupNormalized(eps=0.0)(b)[:, 0], torch.tensor([-1.0, 1, -1, 1]) * 0.5**0.5)
    close(RewardDecoupled(whiten="off", eps=0.0)(b)[:, 0], torch.tensor([-1.0, 1, -2, 2]) * 0.5**0.5)


def test_one_reward_reduces_to_group_normalized_then_whitened():
    b = scored([0, 0, 0, 1, 1], right=[0.1, 0.5, 0.9, 3, 1])
    grpo = GroupNormalized(eps=1e-4)(b)
    close(RewardDecoupled(whiten="off")(b), grpo)
    whitened = Whitened()(dataclasses.replace(b, advantage_NS=grpo))
    close(
        RewardDecoupled(ddof=0, eps=0.0)(b),
        Whitened(eps=0.0)(dataclasses.replace(b, advantage_NS=GroupNormalized(ddof=0, eps=0.0)(b))),
    )
    close(RewardDecoupled()(b), whitened * (4 / 5) ** 0.5 / (1 + 1e-4 / float(grpo.std())))


def test_an_equal_reward_adds_nothing():
    right, nothing = [0.0, 1, 1, 0], [0.3] * 4
    close(
        RewardDecoupled()(scored([0, 0, 1, 1], right=right, form=nothing)),
        RewardDecoupled()(scored([0, 0, 1, 1], right=right)),
    )
    assert (RewardDecoupled()(scored([0, 0, 1, 1], form=nothing, other=nothing)) == 0).all()
    assert (RewardDecoupled()(scored([0, 1, 2, 3], right=right, form=nothing)) == 0).all()


def test_reduces_to_lightning_rl_with_population_deviation():
    """Two rewards, per-group z-scores, summed, divided by the batch's deviation: by hand."""
    b = scored([0] * 4, right=[1.0, 1, 0, 0], speed=[1.0, 2, 3, 4])
    z = torch.tensor([1.0, 1, -1, -1]) + (torch.tensor([1.0, 2, 3, 4]) - 2.5) / 1.25**0.5
    close(RewardDecoupled(ddof=0, eps=0.0)(b)[:, 0], z / z.std(correction=0))


def test_weights_and_names():
    b = scored([0, 0], right=[0.0, 1], form=[1.0, 0])
    half = 0.5**0.5
    both = RewardDecoupled(rewards=("right", "form"), weights=(1.0, 0.25), whiten="off", eps=0.0)
    close(both(b)[:, 0], [-0.75 * half, 0.75 * half])
    close(RewardDecoupled(rewards=("form",), whiten="off", eps=0.0)(b)[:, 0], [half, -half])


def test_the_gate_closes_easy_rewards():
    b = scored([0, 0, 0], right=[0.0, 0, 1], form=[1.0, 0, 1])
    gated = RewardDecoupled(gate="right", whiten="off", eps=0.0)
    plain = RewardDecoupled(whiten="off", eps=0.0)
    close(gated(b), plain(scored([0, 0, 0], right=[0.0, 0, 1], form=[0.0, 0, 1])))
    open_ = dataclasses.replace(gated, threshold=0.0)
    close(open_(b), plain(b))


def test_scale_alone_keeps_groups_centred():
    b = scored([0, 0, 0, 1, 1], right=[0.0, 0, 1, 2, 5], form=[1.0, 0, 1, 0, 1])
    a = RewardDecoupled(whiten="scale", eps=1e-9)(b)[:, 0]
    close(a[:3].sum(), 0.0)
    close(a[3:].sum(), 0.0)
    close(a.double().square().sum() / 4, 1.0)


def test_failures_of_a_scorer_are_no_reward():
    b = scored([0, 0], right=[0.0, 1])
    with_errors = b.with_columns({"score/error": torch.tensor([1.0, 0.0])})
    close(RewardDecoupled()(with_errors), RewardDecoupled()(b))


def test_errors_say_the_way_out():
    b = scored([0, 0], right=[0.0, 1])
    with pytest.raises(ValueError, match=r"RewardDecoupled reads the rewards \['form'\].*\['right'\]"):
        RewardDecoupled(rewards=("form",))(b)
    with pytest.raises(ValueError, match="by name"):
        RewardDecoupled()(dataclasses.replace(b, facts={}))
    with pytest.raises(ValueError, match="2 weights for 0"):
        RewardDecoupled(weights=(1.0, 2.0))
    with pytest.raises(ValueError, match="none of its rewards"):
        RewardDecoupled(gate="right", rewards=("form",))
