"""Propose, score, pick: each pick against its weights by hand, and the policy that acts by them."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from gimbal.ops import philox
from gimbal.policies.best_of import BestOf
from gimbal.policies.control import Steps
from gimbal.policies.one_step import OneStep
from gimbal.policies.picks import Best, ByExpectile

SIZES = {"observations": 3, "actions": 2, "hidden": (8,), "bound": 1.5}
PLAIN = BestOf(**SIZES, proposals=4, flow_steps=3)
EDITED = replace(PLAIN, edit=0.25, score="mean", members=3, layer_norm=True)
WEIGHED = replace(PLAIN, pick=ByExpectile(expectile=0.8))
EVERY = pytest.mark.parametrize("spec", [PLAIN, EDITED, WEIGHED], ids=["plain", "edited", "weighed"])
SCORES = torch.tensor([[1.0, 4.0, 2.0, 3.0]])


def even(count):
    """The middles of so many equal parts of [0, 1)."""
    return (torch.arange(count) + 0.5) / count


def shares(pick, value=0.0, score=SCORES, count=1000):
    """How often each proposal is picked."""
    picked = pick(score.expand(count, -1), torch.full((count,), value), even(count))
    return [float((picked == place).float().mean()) for place in range(score.shape[1])]


def test_best_is_the_largest_and_the_first_of_equals():
    assert shares(Best()) == [0, 1, 0, 0]
    assert shares(Best(), score=torch.tensor([[2.0, 3.0, 3.0]])) == [0, 1, 0]
    assert shares(Best(), score=torch.tensor([[-7.0]])) == [1]


def test_an_expectile_weighs_what_is_above_the_value():
    """Of four, two above 2.5: .8, .8, .2 and .2, in all 2."""
    assert shares(ByExpectile(expectile=0.8), value=2.5) == pytest.approx([0.1, 0.4, 0.1, 0.4], abs=1e-3)
    # One that is as good as the value is not above it, as in the loss of V.
    assert shares(ByExpectile(expectile=0.8), value=3.0) == pytest.approx(
        [0.2 / 1.4, 0.8 / 1.4, 0.2 / 1.4, 0.2 / 1.4], abs=2e-3
    )


def test_at_an_expectile_of_a_half_any_is_as_likely():
    assert shares(ByExpectile(expectile=0.5), value=2.5) == [0.25] * 4


@pytest.mark.parametrize("value", [0.0, 9.0])
def test_all_on_one_side_of_the_value_are_alike(value):
    assert shares(ByExpectile(expectile=0.9), value=value) == pytest.approx([0.25] * 4, abs=1e-3)


def test_the_mean_under_the_weights_is_the_expectile():
    """Which is what V is: sum_p w_p (q_p - v) = 0 at the v that minimises the expectile's loss, found here by halving."""
    score, tau = torch.tensor([0.3, -1.2, 2.0, 0.9, -0.4], dtype=torch.float64), 0.8
    low, high = float(score.min()), float(score.max())
    for _ in range(60):
        middle = (low + high) / 2
        slope = float((torch.where(score < middle, 1 - tau, tau) * (score - middle)).sum())
        low, high = (middle, high) if slope > 0 else (low, middle)
    weight = ByExpectile(expectile=tau).weights(score[None].float(), torch.tensor([low]))[0]
    assert float((weight * score).sum() / weight.sum()) == pytest.approx(low, abs=1e-6)


def test_a_uniform_number_of_1_picks_one_that_counts():
    """As a normal number of 6 gives in float32."""
    assert int(Best()(SCORES, torch.zeros(1), torch.ones(1))) == 1
    assert int(ByExpectile()(SCORES, torch.zeros(1), torch.ones(1))) in range(4)


@pytest.mark.parametrize("expectile", [0.0, 1.0, math.nan])
def test_an_expectile_outside_is_refused(expectile):
    with pytest.raises(ValueError, match="between 0 and 1"):
        ByExpectile(expectile=expectile)


# The policy.


def drawn(spec, temperature, count=200, seed=0):
    policy, g = spec.load(seed), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.judge.weights:
            weight.mul_(3)  # scores that differ
    seen, noise = torch.randn(count, 3, generator=g), policy.noise(philox("draws"), count)
    with torch.no_grad():
        action, said = policy.draw(seen, noise, torch.full((count,), temperature))
    return policy, seen, noise, action, said


def proposals(policy, spec, seen, noise):
    """All of them, each by a loop of its own."""
    found, k, a = [], spec.proposals, 2
    for row, z in zip(seen, noise, strict=True):
        own = []
        for p in range(k):
            x = z[a * p : a * (p + 1)]
            for step in range(spec.flow_steps):
                x = x + policy.flow.net(torch.cat([row, x, torch.tensor([step / spec.flow_steps])])) / spec.flow_steps
            own.append(x.clamp(-1, 1))
        for p in range(k if spec.edit else 0):
            mean, log_std = policy.edits.moments(torch.cat([row, own[p]])).chunk(2)
            u = mean + log_std.clamp(-5, 2).exp() * z[a * (k + p) : a * (k + p + 1)]
            own.append((own[p] + spec.edit * u.tanh()).clamp(-1, 1))
        found.append(torch.stack(own))
    return torch.stack(found)


@EVERY
def test_at_a_temperature_of_0_the_best_proposal_is_played(spec):
    policy, seen, noise, action, said = drawn(spec, 0.0, count=20)
    with torch.no_grad():
        share = proposals(policy, spec, seen, noise)
        q = torch.stack([policy.judge(seen, 1.5 * share[:, p]) for p in range(share.shape[1])], 1)
        score = q.mean(-1) if spec is EDITED else q.min(-1).values
        expected = 1.5 * share[torch.arange(20), score.argmax(-1)]
    torch.testing.assert_close(action, expected)
    assert not said.any() and float(action.abs().max()) <= 1.5
    assert len(score.argmax(-1).unique()) > 2, "now this one is the best, now that"
    if spec is EDITED:
        assert share.shape[1] == 8 and bool((score.argmax(-1) >= 4).any())
        assert float((share[:, 4:] - share[:, :4]).abs().max()) <= 0.25


def test_a_draw_is_picked_by_the_last_number_alone():
    """Best always plays the best; an expectile plays others too, in proportion to its weights."""
    assert torch.equal(drawn(PLAIN, 1.0)[3], drawn(PLAIN, 0.0)[3])
    policy, seen, noise, action, _ = drawn(WEIGHED, 1.0, count=4000)
    with torch.no_grad():
        share = policy.propose(seen, noise)
        above = policy.scores(policy.judge, seen, share) > policy.value(seen)
        weight = torch.where(above, 0.8, 0.2)
        played = (1.5 * share == action[:, None]).all(-1)
    expected = float(((weight * above).sum(-1) / weight.sum(-1)).mean())
    assert 0.2 < expected < 0.99
    assert float((played & above).any(-1).float().mean()) == pytest.approx(expected, abs=0.03)
    assert not torch.equal(action, drawn(WEIGHED, 0.0, count=4000)[3])


def test_one_proposal_without_edits_is_the_flow():
    """Behavior cloning: whatever the critic says."""
    policy, seen, noise, action, _ = drawn(replace(PLAIN, proposals=1), 1.0)
    expected = 1.5 * policy.flow.end(seen, noise[:, :2], 3).detach()
    torch.testing.assert_close(action, expected)


@EVERY
def test_what_stands_for_a_log_probability_is_the_same_in_a_draw_and_afterwards(spec):
    policy, seen, _, action, said = drawn(spec, 1.0, count=6)
    steps = Steps(
        observation_NSO=seen[None],
        action_NSA=action[None],
        final_NO=seen[:1],
        length_N=torch.tensor([6]),
        terminated_N=torch.tensor([False]),
    )
    torch.testing.assert_close(policy.evaluate(steps).logprob_NS[0].detach(), said)
    other = spec.load(5).evaluate(steps).logprob_NS[0]
    assert bool(((other - said).abs() > 1e-4).all()), "it shows whose weights drew an action"


@EVERY
def test_a_saved_policy_comes_back_and_its_rule_of_acting_is_the_runs(spec, tmp_path):
    policy, seen, noise, action, _ = drawn(spec, 0.0)
    policy.save(tmp_path)
    again = replace(spec, hidden=(3,), bound=9.0).at(tmp_path).load(7)
    with torch.no_grad():
        assert torch.equal(again.draw(seen, noise, torch.zeros(200))[0], action)
    fewer = replace(spec, proposals=2).at(tmp_path).load(7)
    assert fewer.noise(philox("n"), 5).shape == (5, 5 if spec is not EDITED else 9)


def test_weights_without_a_part_that_is_asked_for_are_refused(tmp_path):
    PLAIN.load(0).save(tmp_path)
    for spec, name in ((EDITED, "edits"), (WEIGHED, "values")):
        with pytest.raises(ValueError, match=f"was saved without a network for {name}"):
            spec.at(tmp_path).load(0)


def test_another_policys_weights_are_refused_in_a_sentence(tmp_path):
    OneStep(observations=3, actions=2).load(0).save(tmp_path)
    with pytest.raises(ValueError, match="holds no BestOf policy"):
        PLAIN.at(tmp_path).load(0)


@EVERY
def test_no_gradient_reaches_what_scores(spec):
    policy = spec.load(0)
    copied = {id(weight) for part in (policy.judge, policy.value) if part is not None for weight in part.parameters()}
    assert {id(weight) for weight in policy.parameters() if not weight.requires_grad} == copied
    other = spec.load(3)
    policy.take_scores(other.judge, other.value)
    for own, theirs in zip(policy.judge.parameters(), other.judge.parameters(), strict=True):
        assert torch.equal(own, theirs) and own is not theirs


def test_a_sampler_in_bfloat16_draws():
    policy = WEIGHED.load(0).to(torch.bfloat16)
    with torch.no_grad():
        action, said = policy.draw(torch.randn(5, 3), policy.noise(philox("n"), 5), torch.ones(5))
    assert action.dtype == said.dtype == torch.float32 and not nn.functional.relu(action.abs() - 1.5).any()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"proposals": 0}, "BestOf.proposals is 0"),
        ({"flow_steps": 0}, "BestOf.flow_steps is 0"),
        ({"members": 0}, "BestOf.members is 0"),
        ({"edit": -0.1}, "BestOf.edit is -0.1"),
        ({"edit": math.nan}, "BestOf.edit is nan"),
        ({"bound": 0.0}, "policy.bound is 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        replace(PLAIN, **changes)
