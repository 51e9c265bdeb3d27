"""A policy and its disturber: two Gaussians side by side, apart in all weights."""

from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal

from gimbal.policies.disturbed import Disturbed

SPEC = Disturbed(observations=3, actions=3, disturbances=1, hidden=(8,), log_std=-0.3, push_log_std=0.4)
SEEN = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))


def test_the_log_probability_is_the_sum_of_two_densities():
    policy = SPEC.load(4)
    action, logprob = policy.draw(SEEN, NOISE, torch.full((20,), 0.5))
    mean = torch.cat([policy.actor.mean(SEEN), policy.disturber.mean(SEEN)], -1)
    std = torch.tensor([-0.3, -0.3, 0.4]).exp() * 0.5**0.5
    torch.testing.assert_close(action, mean + std * NOISE)
    torch.testing.assert_close(logprob, Normal(mean, std).log_prob(action).sum(-1))
    again, entropy = policy.assess(SEEN, action, 0.5)
    torch.testing.assert_close(again, logprob)
    torch.testing.assert_close(entropy, Normal(mean, std).entropy().sum(-1))
    one, other = policy.each(SEEN, action, 0.5)
    torch.testing.assert_close(one[0], Normal(mean, std).log_prob(action)[:, :2].sum(-1))
    torch.testing.assert_close(other[0], Normal(mean, std).log_prob(action)[:, 2])


def test_the_mode_is_that_of_both():
    policy = SPEC.load(4)
    action, logprob = policy.draw(SEEN, NOISE, torch.zeros(20))
    torch.testing.assert_close(action, torch.cat([policy.actor.mean(SEEN), policy.disturber.mean(SEEN)], -1))
    assert not logprob.any()


def test_the_two_share_no_weight_and_begin_apart():
    policy = SPEC.load(4)
    one, other = policy.each(SEEN, NOISE, 1.0)
    for logprob, own, foreign in ((one[0], policy.actor, policy.disturber), (other[0], policy.disturber, policy.actor)):
        gradients = torch.autograd.grad(logprob.sum(), list(foreign.parameters()), allow_unused=True, retain_graph=True)
        assert all(gradient is None for gradient in gradients)
        assert all(g.any() for g in torch.autograd.grad(logprob.sum(), list(own.parameters()), retain_graph=True))
    first = [next(part.parameters()) for part in (policy.actor, policy.disturber)]
    assert not torch.equal(*first)


def test_it_is_saved_and_comes_back(tmp_path):
    policy = SPEC.load(4)
    policy.save(tmp_path)
    again = Disturbed(observations=1, actions=2, model=str(tmp_path)).load(9)
    still = torch.zeros(20)
    torch.testing.assert_close(again.draw(SEEN, NOISE, still)[0], policy.draw(SEEN, NOISE, still)[0])
    assert again.interface == "3 observations, 3 real actions" and SPEC.at(tmp_path).model == str(tmp_path)


@pytest.mark.parametrize("count", [0, 3])
def test_each_of_the_two_has_numbers_of_its_own(count):
    with pytest.raises(ValueError, match=r"3 numbers here, of which policy\.disturbances=\d are a disturbance"):
        replace(SPEC, disturbances=count).load()
