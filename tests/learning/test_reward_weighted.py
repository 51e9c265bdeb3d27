"""What a reward's value and its slope make rollouts, blocks and pixels count, by hand; and that the loss counts them so."""

import math
from dataclasses import dataclass, replace

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from test_denoising_gradients import policy_of
from test_distribution_matching import FLOW, batch_of, learner_of

from gimbal.learning.updates.distribution_matching import FAKE, DistributionMatching
from gimbal.learning.updates.reward_weighted import ELEMENT, ROLLOUT, RewardWeighted
from gimbal.records import TrainBatch
from gimbal.rewards.samples import AbstractSampleReward


@dataclass(frozen=True, kw_only=True)
class Slope(AbstractSampleReward):
    """Its gradient is ``slope`` times 1 + the class that was asked for."""

    name: str = "slope"
    slope: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)

    def of_samples(self, x_ND, label_N):
        return (x_ND * torch.tensor(self.slope)).sum(-1) * (1 + label_N)


def test_rollouts_count_by_their_rewards():
    mask_NS = torch.tensor([[True], [True], [False], [True]])
    batch = TrainBatch(mask_NS=mask_NS, reward_NS=torch.tensor([[1.0], [3.0], [9.0], [1.0]]))
    w_N = RewardWeighted(tau=2.0).of_rollouts(batch)
    good = math.e  # exp((3 - 1) / 2)
    torch.testing.assert_close(w_N, torch.tensor([1.0, good, 0.0, 1.0]) * 3 / (2 + good))
    torch.testing.assert_close(RewardWeighted(tau=math.inf).of_rollouts(batch), mask_NS[:, 0].float())
    torch.testing.assert_close(RewardWeighted(tau=1e-3).of_rollouts(batch), torch.tensor([0.0, 3.0, 0.0, 0.0]))


def told(policy, label, episode):
    batch = batch_of(policy)
    decisions = replace(batch.decisions, label_N=torch.tensor(label))
    return replace(batch, decisions=decisions, episode_N=torch.tensor(episode))


def test_blocks_and_pixels_count_by_the_slope_of_the_reward():
    """Slopes 1, -2, 0 and 5 have a mean size of 2: 0.5, 1, 0 and 2.5, cut at 0.2. Blocks of an episode are told its class once."""
    policy = policy_of(0, FLOW())
    n = len(batch_of(policy).mask_NS)
    batch = told(policy, [2, *[-1] * (n - 1)], [0, 0, *range(1, n - 1)])
    weights = RewardWeighted().of_elements(batch, (Slope(slope=(1.0, -2.0, 0.0, 5.0)), Slope(name="half", weight=0.0)))
    pixel = torch.tensor([0.5, 1.0, 0.2, 2.5]) / 1.05
    torch.testing.assert_close(weights[0].flatten(), pixel)
    torch.testing.assert_close(weights[1].flatten(), pixel)
    alike = RewardWeighted().of_elements(batch, (Slope(),))
    torch.testing.assert_close(alike, torch.ones_like(alike))


@dataclass(frozen=True, kw_only=True)
class Square(AbstractSampleReward):
    name: str = "square"

    def of_samples(self, x_ND, label_N):
        return x_ND.square().sum(-1) / 2


def test_a_block_counts_by_its_mean_slope_among_those_of_its_episode():
    policy = policy_of(0, FLOW())
    batch = batch_of(policy)
    n = len(batch.mask_NS)
    batch = told(policy, [-1] * n, [0, 0, *range(1, n - 1)])
    found = RewardWeighted().of_elements(batch, (Square(),))[:, 0].flatten(1).mean(1)
    size_N = batch.decisions.sample_ND.flatten(1).abs().mean(1)
    share_N = (size_N[:2] / size_N[:2].mean()).clamp(0.2, 5)
    torch.testing.assert_close(found[:2], share_N / share_N.mean())
    torch.testing.assert_close(found[2:], torch.ones(n - 2))


def surveyed(learner, batch):
    return learner.update.survey(learner.models, learner.prepare(batch))[0]


def test_the_loss_counts_each_number_and_each_rollout_so():
    policy = policy_of(0, FLOW())
    update = DistributionMatching(fake_updates=1, weighted=RewardWeighted(), rewards=(Square(),))
    learner = learner_of(policy, update, **{FAKE: policy_of(5, FLOW())})
    batch = batch_of(policy)
    reward_NS = batch.mask_NS * torch.arange(len(batch.mask_NS))[:, None].float()
    batch = replace(batch, reward_NS=reward_NS, episode_N=torch.arange(len(batch.mask_NS)))
    batch = surveyed(learner, batch)
    one_N, one_ND = torch.ones_like(batch.facts[ROLLOUT]), torch.ones_like(batch.facts[ELEMENT])

    def value(rollout_N, element_ND, of=update):
        *_, loss = of.losses(learner.models, batch.with_columns({ROLLOUT: rollout_N, ELEMENT: element_ND}))
        return float(loss.value.detach())

    plain = {name: fact for name, fact in batch.facts.items() if name not in (ROLLOUT, ELEMENT)}
    *_, loss = replace(update, weighted=None).losses(learner.models, replace(batch, facts=plain))
    whole = float(loss.value.detach())
    assert value(one_N, one_ND) == pytest.approx(whole)
    assert value(batch.facts[ROLLOUT], batch.facts[ELEMENT]) != pytest.approx(whole, rel=1e-3)
    rows = [value((torch.arange(len(one_N)) == n).float(), one_ND) for n in range(len(one_N))]
    assert sum(rows) == pytest.approx(whole) and min(rows) > 0
    halves = [
        value(one_N, one_ND * (one_ND.cumsum(-1) <= 1) * side + one_ND * (one_ND.cumsum(-1) > 1) * (1 - side))
        for side in (0, 1)
    ]
    assert sum(halves) == pytest.approx(whole) and min(halves) > 0


def test_weights_that_weigh_nothing_are_refused():
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="it must be above 0"):
            RewardWeighted(tau=wrong)
    with pytest.raises(ValueError, match=r"weighs nothing: leave it out \(None\)"):
        RewardWeighted(tau=math.inf, saliency=False)
