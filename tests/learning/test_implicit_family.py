"""FamO2O against sums taken here, and its limiting cases: IQL and behavior cloning."""

import math
from dataclasses import replace

import pytest
import torch
from test_offline_control import CRITIC, SIZES, K, batch_of, gradient, learner, losses, parts, prepared
from torch.distributions import Normal

from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.behavior_cloning import BehaviorCloning
from gimbal.learning.updates.implicit_family import ACTS, FAMILY, PICKS, ImplicitFamily
from gimbal.learning.updates.implicit_q import ImplicitQ
from gimbal.policies.balanced import Balanced, waves

WIDE = Balanced(**SIZES, bound=1.5, low=0.5, high=4.0)
ONE = replace(WIDE, low=2.0, high=2.0)


def update_of(**settings):
    return ImplicitFamily(critic=CRITIC, gamma=0.9, **settings)


def split(policy):
    """The weights of the family, and of the balance model."""
    own = [*policy.balance.parameters()]
    return [x for x in policy.parameters() if not any(x is y for y in own)], own


def grads(loss, weights):
    found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for g, w in zip(found, weights, strict=True)]


@pytest.mark.parametrize("uniform", [True, False])
def test_famo2o_is_its_equations(uniform):
    made, batch = learner(update_of(uniform=uniform, most=1.1, alpha=0.7), WIDE), batch_of()
    seen, action, *_ = parts(batch)
    policy, facts = made.policy, prepared(made, batch).facts
    q, v = made.models["target"], made.models["value"]

    def picks(noise):
        mean, log_std = policy.balance.moments(seen).chunk(2, -1)
        x = mean + log_std.clamp(-5, 2).exp() * noise
        density = Normal(mean, log_std.clamp(-5, 2).exp()).log_prob(x) - torch.log(1 - x.tanh().square())
        return 0.5 + 3.5 * (x.tanh() + 1) / 2, density[:, 0]

    def mean(balance):
        return 1.5 * torch.tanh(policy.mean(torch.cat([seen, waves(balance)], -1)))

    with torch.no_grad():
        above = q(seen, action).min(-1).values - v(seen)[:, 0]
        drawn = facts[FAMILY][:, 0]
        balance = 0.5 + 3.5 * (drawn + 1) / 2 if uniform else picks(drawn)[0]
        weight = (balance[:, 0] * above).exp().clamp(max=1.1)
    assert 0 < int((weight == 1.1).sum()) < K
    density = Normal(mean(balance), policy.log_std_A.exp()).log_prob(action).sum(-1)
    of_family = -(weight * density).mean()
    tried, logprob = picks(facts[PICKS][:, 0])
    acted = mean(tried) + policy.log_std_A.exp().detach() * facts[ACTS][:, 0]
    of_balance = (0.7 * logprob - q(seen, acted.clamp(-1.5, 1.5)).min(-1).values).mean()

    found = losses(made, batch)
    assert list(found) == ["value", "policy", "critic"]
    loss, (family, balances) = found["policy"], split(policy)
    torch.testing.assert_close(grads(loss.value, family), grads(of_family, family))
    torch.testing.assert_close(grads(loss.value, balances), grads(of_balance, balances))
    (of_alpha,) = gradient(loss.value, made.models["temperature"])
    torch.testing.assert_close(of_alpha, -(logprob.detach() - 0.5).mean())
    assert loss.metrics["alpha"] == pytest.approx(0.7) and loss.metrics["weight/mean"] == pytest.approx(
        float(weight.mean())
    )


def test_with_one_balance_it_is_iql_and_with_balance_0_behavior_cloning():
    batch = batch_of()
    for beta, spec, plain in (
        (2.0, ONE, ImplicitQ(critic=CRITIC, gamma=0.9, beta=2.0)),
        (0.0, replace(WIDE, low=0.0, high=0.0), BehaviorCloning()),
    ):
        made, other = learner(update_of(), spec), learner(plain, spec)
        assert bool((made.policy.picked(parts(batch)[0]) == beta).all())
        pairs = [grads(losses(one, batch)["policy"].value, split(one.policy)[0]) for one in (made, other)]
        for mine, its in zip(*pairs, strict=True):
            torch.testing.assert_close(mine, its)


def test_critics_are_iqls_bit_for_bit():
    batch = batch_of()
    for name in ("value", "critic"):
        one, other = (
            losses(made, batch)[name].value
            for made in (learner(update_of(), WIDE), learner(ImplicitQ(critic=CRITIC, gamma=0.9), WIDE))
        )
        assert torch.equal(one, other)


def test_what_it_plays_is_what_it_assesses():
    policy = WIDE.load(3)
    seen, noise = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)), torch.randn(9, 2)
    for temperature in (1.0, 0.25):
        action, logprob = policy.draw(seen, noise, torch.full((9,), temperature))
        found, entropy = policy.assess(seen, action, temperature)
        torch.testing.assert_close(found, logprob)
        std = policy.log_std_A.exp() * math.sqrt(temperature)
        torch.testing.assert_close(entropy[0], Normal(torch.zeros(2), std).entropy().sum())
    mode, none = policy.draw(seen, noise, torch.zeros(9))
    assert torch.equal(mode, policy.mode(seen, policy.picked(seen))) and not bool(none.any())
    assert policy.picked(seen).unique().numel() == 9, "a balance of each state"
    assert bool(((policy.picked(seen) > 0.5) & (policy.picked(seen) < 4.0)).all())


def test_the_balance_goes_where_value_says():
    """In half of the states the recorded good action is rare: there a larger balance is worth more, and elsewhere none is."""
    g = torch.Generator().manual_seed(0)
    count = 256
    batch = batch_of()
    mixed = torch.arange(count) % 2 == 0
    seen = torch.where(mixed, 1.0, -1.0)[:, None] + 0.1 * torch.randn(count, 3, generator=g)
    good = torch.where(mixed, torch.rand(count, generator=g) < 0.2, True)
    action = torch.where(good, 1.0, -1.0)[:, None].expand(count, 2)
    steps = replace(
        batch.decisions,
        observation_NSO=seen[:, None],
        action_NSA=action[:, None].clone(),
        final_NO=seen,
        length_N=torch.ones(count, dtype=torch.long),
        terminated_N=torch.ones(count, dtype=torch.bool),
    )
    batch = replace(
        batch,
        decisions=steps,
        reward_NS=3 * good.float()[:, None],
        mask_NS=torch.ones(count, 1, dtype=torch.bool),
        facts={name: torch.ones(count, dtype=x.dtype) for name, x in batch.facts.items()},
    )
    rates = Optimization(learning_rate=3e-3, critic_learning_rate=1e-2, beta2=0.999)
    spec = replace(WIDE, low=0.0, high=3.0, hidden=(32,))
    update = update_of(expectile=0.7, temperature_learning_rate=3e-3, alpha=0.1, optimization=rates)
    made = Learner(spec.load(1), update, seed=0)
    for _ in range(500):
        told = made.step(made.prepare(batch))
    picked = made.policy.picked(seen)[:, 0].detach()
    assert float(picked[mixed].mean()) > float(picked[~mixed].mean()) + 0.3, picked
    assert told["balance/spread"] > 0.15 and told["balance/mean"] == pytest.approx(float(picked.mean()), abs=0.1)
    mode = made.policy.mode(seen, made.policy.picked(seen)).detach()[:, 0]
    low = made.policy.mode(seen, torch.zeros(count, 1)).detach()[:, 0]
    assert float(low[mixed].mean()) < 0 < float(mode[mixed].mean()), "at balance 0 it does as the data do"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: update_of(most=0.0), "most 0.0 and alpha 1.0"),
        (lambda: update_of(alpha=math.inf), "alpha inf"),
        (lambda: update_of(temperature_learning_rate=math.nan), "temperature_learning_rate nan"),
        (lambda: update_of(expectile=1.0), "between 0 and 1"),
        (lambda: replace(WIDE, low=-1.0), "low -1.0 and high 4.0, between which"),
        (lambda: replace(WIDE, low=5.0), "high no less than low"),
        (lambda: replace(WIDE, high=math.inf), "finite"),
    ],
)
def test_settings_of_a_family_that_mean_nothing_are_refused(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()
