"""H-infinity control against sums taken here, and its limiting cases."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal

from gimbal.advantages import GAE
from gimbal.critics.mlp import ValueMLP
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.h_infinity import HInfinity
from gimbal.objectives import ClippedRatio
from gimbal.policies.control import Steps
from gimbal.policies.disturbed import Disturbed
from gimbal.records import TrainBatch

N, S = 3, 4
LENGTHS, ENDED = (4, 2, 3), (True, False, True)
PLAIN = Optimization(learning_rate=0.01, critic_learning_rate=0.01, max_grad_norm=math.inf)
UPDATE = HInfinity(
    critic=ValueMLP(observations=3, hidden=(8,), scale=2.0),
    attenuation=0.7,
    multiplier=0.6,
    best=1.5,
    advantage=GAE(gamma=0.9, lam=0.8),
    objective=ClippedRatio(clip_low=0.1, clip_high=0.2),
    optimization=PLAIN,
)
POLICY = Disturbed(observations=3, actions=4, disturbances=2, hidden=(8,))


def batch_of():
    g = torch.Generator().manual_seed(0)
    mask = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
    steps = Steps(
        observation_NSO=torch.randn(N, S, 3, generator=g),
        action_NSA=1.5 * torch.randn(N, S, 4, generator=g),
        final_NO=torch.randn(N, 3, generator=g),
        length_N=torch.tensor(LENGTHS),
        terminated_N=torch.tensor(ENDED),
    )
    return TrainBatch(mask_NS=mask, reward_NS=torch.randn(N, S, generator=g) * mask, decisions=steps)


def prepared(update=UPDATE):
    made = Learner(POLICY.load(1), update, seed=0)
    rows, told = update.prepare(made.models, batch_of())
    return made, update.survey(made.models, rows)[0], told


def sizes(steps):
    return steps.action_NSA[..., 2:].clamp(-1, 1).square().sum(-1).sqrt()


def advantages(made, paid, model, after_end):
    """A of each step, written as one sum over what comes after it."""
    batch, critic = batch_of(), made.models[model]
    steps, found = batch.decisions, torch.zeros(N, S)
    with torch.no_grad():
        value = 2.0 * critic.net(steps.observation_NSO)[..., 0]
        final = 2.0 * critic.net(steps.final_NO)[..., 0]
    for n, length in enumerate(LENGTHS):
        last = after_end if ENDED[n] else final[n]
        after = [*value[n, 1:length], last]
        delta = [paid[n, s] + 0.9 * after[s] - value[n, s] for s in range(length)]
        for s in range(length):
            found[n, s] = sum((0.9 * 0.8) ** k * delta[s + k] for k in range(length - s))
    return found, value


def whitened(advantage, mask):
    own = advantage[mask]
    return ((advantage - own.mean()) / own.std(correction=0)) * mask


def expected(made, update=UPDATE):
    """A_R and A_K."""
    batch = batch_of()
    cost = update.best - batch.reward_NS
    one, _ = advantages(made, batch.reward_NS, "critic", 0.0)
    excess = cost - update.attenuation * sizes(batch.decisions)
    other, _ = advantages(made, excess, "excess", update.best / (1 - 0.9))
    return one, other


def test_the_advantages_are_their_equations():
    made, rows, told = prepared()
    one, other = expected(made)
    mask = rows.mask_NS
    torch.testing.assert_close(
        rows.facts["actor/advantage"], whitened((one - 0.6 * other) / 1.6, mask), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(rows.facts["disturber/advantage"], whitened(other, mask), atol=1e-4, rtol=0)
    cost, size = (1.5 - batch_of().reward_NS)[mask], sizes(batch_of().decisions)[mask]
    assert told["cost/mean"] == pytest.approx(float(cost.mean())) and told["push/mean"] == pytest.approx(
        float(size.mean())
    )
    assert told["excess/mean"] == pytest.approx(float((cost - 0.7 * size).mean()), abs=1e-6)
    assert told["gain"] == pytest.approx(float(cost.sum() / size.sum()), rel=1e-5)


def test_the_losses_are_their_equations():
    made, rows, _ = prepared()
    policy, steps, mask = made.models.policy, rows.decisions, rows.mask_NS
    with torch.no_grad():  # away from where the ratios are 1, so that some are clipped
        for weight in policy.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    losses = {loss.of: loss for loss in UPDATE.losses(made.models, rows)}
    total = torch.zeros(())
    for name, own, columns in (("actor", policy.actor, slice(0, 2)), ("disturber", policy.disturber, slice(2, 4))):
        now = (
            Normal(own.mean(steps.observation_NSO), own.log_std_A.exp())
            .log_prob(steps.action_NSA[..., columns])
            .sum(-1)
        )
        ratio, advantage = (now - rows.facts[f"{name}/before"]).exp(), rows.facts[f"{name}/advantage"]
        kept = torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.2) * advantage)
        total = total - kept[mask].mean()
        share = ((advantage > 0) & (ratio > 1.2))[mask].float().mean()
        assert losses[("policy",)].metrics[f"{name}/clip_ratio/high"] == pytest.approx(float(share), abs=1e-6)
    torch.testing.assert_close(losses[("policy",)].value, total)
    (one, value), (other, worst) = (
        advantages(made, paid, model, end)
        for paid, model, end in (
            (batch_of().reward_NS, "critic", 0.0),
            (1.5 - batch_of().reward_NS - 0.7 * sizes(steps), "excess", 15.0),
        )
    )
    for name, advantage, old in (("critic", one, value), ("excess", other, worst)):
        # The critic has not moved yet, so its error is its advantage.
        torch.testing.assert_close(losses[(name,)].value, (advantage[mask].square() / 2).mean(), atol=1e-4, rtol=1e-4)
        assert losses[(name,)].value.requires_grad and old.any()


def test_the_gradient_of_each_is_that_of_finite_differences():
    made, rows, _ = prepared()
    policy = made.models.policy
    for own in (policy.actor, policy.disturber):
        weight = own.mean[-1].bias

        def value():
            return next(iter(UPDATE.losses(made.models, rows))).value

        (found,) = torch.autograd.grad(value(), [weight])
        for place in range(2):
            with torch.no_grad():
                weight[place] += 1e-3
                up = float(value())
                weight[place] -= 2e-3
                down = float(value())
                weight[place] += 1e-3
            assert float(found[place]) == pytest.approx((up - down) / 2e-3, abs=2e-3), own


def opposite(made):
    """V_K = -V, as it is where K is -R."""
    own, other = made.models["critic"], made.models["excess"]
    with torch.no_grad():
        other.load_state_dict(own.state_dict())
        other.net[-1].weight.neg_()
        other.net[-1].bias.neg_()


def test_free_forces_and_no_multiplier_are_an_adversary_of_ppo():
    free = replace(UPDATE, attenuation=0.0, multiplier=0.0, best=0.0)
    made = Learner(POLICY.load(1), free, seed=0)
    opposite(made)
    rows, _ = free.prepare(made.models, batch_of())
    one, _ = advantages(made, batch_of().reward_NS, "critic", 0.0)
    torch.testing.assert_close(rows.facts["actor/advantage"], whitened(one, rows.mask_NS), atol=1e-4, rtol=0)
    torch.testing.assert_close(rows.facts["disturber/advantage"], -rows.facts["actor/advantage"], atol=1e-4, rtol=0)


def test_an_attenuation_without_limit_is_a_price_on_force_alone():
    dear = replace(UPDATE, attenuation=1e6, best=0.0)
    made, rows, _ = prepared(dear)
    force, _ = advantages(made, -1e6 * sizes(batch_of().decisions), "excess", 0.0)
    torch.testing.assert_close(rows.facts["disturber/advantage"], whitened(force, rows.mask_NS), atol=1e-3, rtol=0)


def test_a_multiplier_without_limit_is_the_worst_case_alone():
    _, rows, _ = prepared(replace(UPDATE, multiplier=1e6))
    torch.testing.assert_close(rows.facts["actor/advantage"], -rows.facts["disturber/advantage"], atol=1e-3, rtol=0)


def test_an_end_costs_for_ever():
    """The same step, ended or not: what is paid after the end is ``best`` a step, discounted."""
    cheap = replace(UPDATE, best=0.0)
    made, other = Learner(POLICY.load(1), UPDATE, seed=0), Learner(POLICY.load(1), cheap, seed=0)
    targets = [
        update.prepare(m.models, batch_of())[0].facts["excess/target"] for m, update in ((made, UPDATE), (other, cheap))
    ]
    apart = targets[0] - targets[1]
    assert float(apart[0, 3]) == pytest.approx(1.5 * (1 + 0.9 / 0.1), rel=1e-5)  # ended with it
    assert float(apart[1, 1]) == pytest.approx(1.5, rel=1e-4)  # cut off


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"attenuation": -1.0}, r"attenuation -1\.0; it must be 0 or above"),
        ({"multiplier": math.inf}, r"multiplier inf; it must be 0 or above"),
        ({"advantage": GAE(gamma=1.0)}, r"advantage\.gamma 1.*set it below 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        replace(UPDATE, **wrong)
