"""Mean of the group, scale of the batch: by hand, its limits, and what it does for groups that hardly differ."""

import dataclasses

import pytest
import torch

from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.credit.lite_ppo import lite_ppo
from gimbal.records import TrainBatch

REWARD = [1.0, 0, 1, 1, 0, 0, 0, 1]


def batch(reward=REWARD, group=(0, 0, 0, 0, 5, 5, 5, 5), dtype=torch.float64):
    n = len(reward)
    reward_NS = torch.zeros(n, 3, dtype=dtype)
    reward_NS[:, 1] = torch.tensor(reward, dtype=dtype)
    mask_NS = torch.ones(n, 3, dtype=torch.bool)
    mask_NS[:, 2] = torch.arange(n) % 2 == 0
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS, group_N=torch.tensor(group))


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b), atol=1e-6, rtol=1e-6, check_dtype=False)


def gradient(advantage_NS, b):
    """Of the surrogate at the anchor, mean over tokens."""
    logprob_NS = torch.full(b.shape, -1.0, dtype=torch.float64, requires_grad=True)
    b = dataclasses.replace(b, advantage_NS=advantage_NS, proximal_NS=logprob_NS.detach())
    loss_NS = ClippedRatio()(logprob_NS, b).loss_NS
    return torch.autograd.grad((TokenMean()(b.mask_NS) * loss_NS).sum(), logprob_NS)[0]


def test_by_hand():
    # Half of the eight are right: the standard deviation is sqrt(8/4 / 7). Of the centred: six off by 1/4, two by 3/4.
    raw, centred = (2 / 7) ** 0.5, (1.5 / 7) ** 0.5
    expected = torch.tensor([0.25, -0.75, 0.25, 0.25, -0.25, -0.25, -0.25, 0.75])
    close(BatchScaled(eps=0.0)(batch())[:, 0], expected / raw)
    close(BatchScaled(eps=0.0, spread="centred")(batch())[:, 0], expected / centred)
    close(BatchScaled(eps=0.0, limit=1.0)(batch())[:, 0], (expected / raw).clamp(-1, 1))


@pytest.mark.parametrize("spread", ["rewards", "centred"])
def test_reduces_to_group_normalized_with_one_prompt_in_the_batch(spread):
    one = batch(reward=[3.0, 1, 0, 0.5], group=(4, 4, 4, 4))
    close(BatchScaled(spread=spread)(one), GroupNormalized()(one))
    close(gradient(BatchScaled(spread=spread)(one), one), gradient(GroupNormalized()(one), one))


def test_reduces_to_group_centered_without_a_scale():
    close(BatchScaled(spread="none")(batch()), GroupCentered()(batch()))
    close(gradient(BatchScaled(spread="none")(batch()), batch()), gradient(GroupCentered()(batch()), batch()))


@pytest.mark.parametrize("value", [0.1, 1 / 3, -0.7])
@pytest.mark.parametrize("spread", ["rewards", "centred", "none"])
@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_equal_rewards_give_exactly_0(value, spread, eps):
    b = batch(reward=[value] * 7, group=(0, 0, 0, 1, 1, 1, 2), dtype=torch.float32)
    assert (BatchScaled(spread=spread, eps=eps)(b) == 0).all()


def test_only_groups_that_differ_teach():
    a = BatchScaled()(batch(reward=[1.0, 1, 1, 1, 0, 0, 1, 1], group=(0, 0, 0, 1, 2, 2, 2, 2)))
    assert (a[:4] == 0).all() and (a[4:, 0] != 0).all()


def test_a_group_that_hardly_differs_stays_small():
    b = batch(reward=[1.0, 0, 1, 0, 0.50, 0.51, 0.50, 0.51])
    inflated, kept = GroupNormalized()(b)[:, 0].abs(), BatchScaled()(b)[:, 0].abs()
    assert inflated[4:].min() > 0.8 * inflated[:4].max()
    assert kept[4:].max() < 0.02 * kept[:4].min()


def test_rows_without_decisions_do_not_enter_the_scale():
    b = batch(reward=[3.0, 1, 0, 0.5], group=(4, 4, 4, 4))
    more = batch(reward=[3.0, 1, 0, 0.5, 90, 70], group=(4, 4, 4, 4, 6, 6))
    more.mask_NS[4:] = False
    more.reward_NS[4:] = float("nan")
    close(BatchScaled()(more)[:4], BatchScaled()(b))


def test_the_recipe_differs_from_grpo_in_two_parts_only():
    changed = {f.name for f in dataclasses.fields(grpo()) if getattr(grpo(), f.name) != getattr(lite_ppo(), f.name)}
    assert changed == {"advantage", "aggregation"}


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(ValueError, match="inf is off"):
        BatchScaled(limit=0.0)
