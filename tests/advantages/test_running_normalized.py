"""Rewards in units of the run's spread: by hand, in batches as in one, its limits, and as PPO-max uses it."""

import dataclasses
import math

import pytest
import torch

from gimbal.advantages.estimators.gae import GAE
from gimbal.advantages.reward_shaping.kl_reward import KLReward
from gimbal.advantages.reward_shaping.running_normalized import COUNT, MEAN, STD, RunningNormalized
from gimbal.recipes.core.ppo import ppo
from gimbal.recipes.papers.credit.ppo_max import ppo_max
from gimbal.records import TrainBatch

FIXED = {"count": math.inf, "mean": 0.0, "std": 1.0}


def batch(reward, dense=0.0, dtype=torch.float64):
    """Rows of one or two counted decisions; the score on the last of them, ``dense`` on each."""
    n = len(reward)
    mask_NS = torch.ones(n, 3, dtype=torch.bool)
    mask_NS[:, 2] = False
    mask_NS[1:, 1] = False
    reward_NS = torch.full((n, 3), dense, dtype=dtype)
    last_N = torch.where(mask_NS[:, 1], 1, 0)
    reward_NS[torch.arange(n), last_N] += torch.tensor(reward, dtype=dtype)
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS.where(mask_NS, float("nan")))


def rewards(part, b):
    return part(b).sum(-1)


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=1e-6)


def test_by_hand():
    close(rewards(RunningNormalized(), batch([1.0, 3.0])), [-(0.5**0.5), 0.5**0.5])
    # Before: 0 and 4 (mean 2, squares 8); now 5 and 7: mean 4, squares 8 + 2 + 4^2 (2 x 2 / 4) = 26.
    later = RunningNormalized(count=2.0, mean=2.0, std=8**0.5)
    assert later.report(batch([5.0, 7.0])) == pytest.approx({COUNT: 4, MEAN: 4, STD: (26 / 3) ** 0.5})
    close(rewards(later, batch([5.0, 7.0])), [(26 / 3) ** -0.5, 3 * (26 / 3) ** -0.5])
    close(rewards(dataclasses.replace(later, limit=0.5), batch([5.0, 7.0])), [(26 / 3) ** -0.5, 0.5])


def test_carried_from_batch_to_batch_the_moments_are_those_of_the_run():
    pieces = [[1.0, 5.0, 2.0], [7.0], [1e3, 1e3 + 1], [-4.0, 0.25]]
    state = RunningNormalized().init()
    for end, piece in enumerate(pieces, 1):
        part = RunningNormalized().recalling(state)
        report = part.report(batch(piece))
        seen = torch.tensor([x for piece in pieces[:end] for x in piece], dtype=torch.float64)
        assert report == pytest.approx({COUNT: len(seen), MEAN: float(seen.mean()), STD: float(seen.std())})
        close(rewards(part, batch(piece)), ((torch.tensor(piece).double() - seen.mean()) / seen.std()).clamp(-10, 10))
        state = part.update(state, report)


def test_reduces_to_the_rewards_as_they_are():
    b = batch([1.0, -3.0, 70.0], dense=0.5)
    part = RunningNormalized(centre=False, limit=math.inf, **FIXED)
    close(part(b), b.column("reward_NS", part))


def test_a_fixed_scale_is_that_of_a_sample_drawn_beforehand():
    part = RunningNormalized(count=math.inf, mean=2.0, std=4.0)
    close(rewards(part, batch([0.0, 6.0, 100.0])), [-0.5, 1.0, 10.0])
    report = part.report(batch([0.0, 6.0]))
    assert report == {COUNT: math.inf, MEAN: 2.0, STD: 4.0} and part.recalling(part.update(part.init(), report)) == part


@pytest.mark.parametrize("value", [0.1, 1 / 3, -0.7])
@pytest.mark.parametrize("n", [1, 3, 200])
def test_equal_rewards_give_exactly_0_in_the_next_batch_too(value, n):
    b = batch([value] * n, dtype=torch.float32)
    first = RunningNormalized()
    then = first.recalling(first.update(first.init(), first.report(b)))
    assert (first(b).sum(-1) == 0).all() and (then(b).sum(-1) == 0).all()
    close(rewards(RunningNormalized(centre=False), b), [value] * n)


def test_dense_rewards_keep_their_places_in_the_new_unit():
    b = batch([1.0, 3.0], dense=0.5)
    part = RunningNormalized()
    std = part.report(b)[STD]
    close(part(b)[0, 0], 0.5 / std)
    close(rewards(part, b), (b.return_N - b.return_N.mean()) / std)
    assert (part(b)[~b.mask_NS] == 0).all()


def test_rows_without_decisions_are_not_counted():
    b = batch([1.0, 3.0, 90.0])
    b.mask_NS[2] = False
    assert RunningNormalized().report(b) == pytest.approx({COUNT: 2, MEAN: 2, STD: 2**0.5})


def test_ppo_max_with_all_options_off_is_ppo():
    """The same advantages, and recipes that differ in nothing but the options."""
    g = torch.Generator().manual_seed(0)
    policy_NS = torch.randn(4, 3, generator=g, dtype=torch.float64)
    b = dataclasses.replace(batch([1.0, 4.0, -2.0, 0.5]), proximal_NS=policy_NS, reference_NS=policy_NS + 1)
    b = dataclasses.replace(b, value_NS=policy_NS, bootstrap_N=policy_NS[:, 0])
    off = b
    for shape in (RunningNormalized(centre=False, limit=math.inf, **FIXED), KLReward(coef=0.0)):
        off = dataclasses.replace(off, reward_NS=shape(off))
    close(GAE()(off), GAE()(b))
    options = ("reward_shaping", "controllers", "critic", "regularisers", "rewards", "optimization")
    assert dataclasses.replace(ppo_max(), **{name: getattr(ppo(), name) for name in options}) == ppo()


def test_the_penalty_comes_after_the_scale():
    """A KL counted among the rewards would be divided by their spread."""
    kinds = [type(shape) for shape in ppo_max().reward_shaping]
    assert kinds == [RunningNormalized, KLReward]


def test_senseless_numbers_are_refused():
    with pytest.raises(ValueError, match="inf is off"):
        RunningNormalized(limit=0.0)
    with pytest.raises(ValueError, match="below 0"):
        RunningNormalized(count=-1.0)
