"""Ranked proposals: what is drawn is found again, and the likelihood of a choice is that of its softmax."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gimbal.policies.best_of import BestOf
from gimbal.policies.ranked import Ranked

SPEC = Ranked(observations=3, actions=4, hidden=(8,), bound=1.5, proposals=5, flow_steps=3)


def loaded(spec=SPEC, seed=0):
    policy = spec.load(seed)
    with torch.no_grad():
        policy.rank[-1].weight.mul_(300)  # scores that differ
        policy.start_PA.mul_(0.5)  # no proposal is cut off
    return policy


def seen(count):
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(2))


def test_an_action_is_found_again_and_its_likelihood_is_the_softmax_by_hand():
    policy, temperature = loaded(), 0.7
    o, uniform = seen(50), (torch.arange(50)[:, None] + 0.5) / 50
    action, logprob = policy.draw(o, uniform, torch.full((50,), temperature))
    again, entropy = policy.assess(o, action, temperature)
    torch.testing.assert_close(logprob, again)
    for row in (0, 17, 49):
        x = [policy.flow.end(o[row : row + 1], z[None], 3)[0] for z in policy.start_PA]
        score = [float(policy.rank(torch.cat([o[row], one]))) / temperature for one in x]
        of = [math.exp(s) / sum(map(math.exp, score)) for s in score]
        place = min(range(5), key=lambda p: float((1.5 * x[p] - action[row]).abs().sum()))
        torch.testing.assert_close(1.5 * x[place], action[row])
        assert float(logprob[row]) == pytest.approx(math.log(of[place]), abs=1e-5)
        assert float(entropy[row]) == pytest.approx(-sum(p * math.log(p) for p in of), abs=1e-5)


def test_draws_are_in_proportion_and_the_mode_is_the_best():
    policy, count = loaded(), 1000
    o, uniform = seen(1).expand(count, -1), ((torch.arange(count) + 0.5) / count)[:, None]
    action, logprob = policy.draw(o, uniform, torch.ones(count))
    for value in logprob.round(decimals=3).unique():
        assert float(((logprob - value).abs() < 1e-3).float().mean()) == pytest.approx(math.exp(value), abs=3e-3)
    best, none = policy.draw(o, uniform, torch.zeros(count))
    assert torch.allclose(best, action[logprob.argmax()].expand(count, -1)) and not none.any()


def test_one_proposal_has_probability_1_and_nothing_to_learn():
    policy = loaded(replace(SPEC, proposals=1))
    action, logprob = policy.draw(seen(6), torch.rand(6, 1), torch.ones(6))
    assert not logprob.any() and not policy.assess(seen(6), action, 1.0)[1].any()


def test_the_gradient_moves_what_ranks_and_never_the_flow():
    policy = loaded()
    o = seen(7)
    action, _ = policy.draw(o, torch.rand(7, 1, generator=torch.Generator().manual_seed(3)), torch.ones(7))
    policy.double()
    policy.assess(o.double(), action.double(), 1.0)[0].sum().backward()
    assert all(weight.grad is None for weight in policy.flow.parameters())
    bias = policy.rank[0].bias
    told, step = float(bias.grad[1]), 1e-3
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            bias[1] += sign * step
            ends.append(float(policy.assess(o.double(), action.double(), 1.0)[0].sum()))
            bias[1] -= sign * step
    assert told == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=0.02, abs=1e-3) and told != 0


def test_it_takes_a_flow_that_was_trained_and_is_saved_whole(tmp_path: Path):
    of = BestOf(observations=3, actions=4, hidden=(6,), bound=1.5).load(4)
    of.save(tmp_path / "flow")
    policy = replace(SPEC, flow=str(tmp_path / "flow")).load(9)
    for name, weight in of.flow.state_dict().items():
        assert torch.equal(weight, policy.flow.state_dict()[name])
    policy.save(tmp_path / "model")
    again = replace(SPEC, model=str(tmp_path / "model")).load(1)
    uniform = torch.full((4, 1), 0.4)
    assert torch.equal(policy.draw(seen(4), uniform, torch.ones(4))[0], again.draw(seen(4), uniform, torch.ones(4))[0])


@pytest.mark.parametrize("field", ["proposals", "flow_steps"])
def test_counts_of_0_are_refused(field):
    with pytest.raises(ValueError, match="both are at least 1"):
        replace(SPEC, **{field: 0})
