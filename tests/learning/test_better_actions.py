"""A2PR against sums taken here, and its limiting cases: TD3+BC and TD3."""

import math
from dataclasses import replace

import pytest
import torch
from test_offline_control import CRITIC, FIXED, K, batch_of, gradient, learner, losses, parts, prepared
from torch import nn

from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.better_actions import CODED, PROPOSED, ActionCoder, BetterActions
from gimbal.learning.updates.td3 import SMOOTHING, TD3, Imitation


def update_of(alpha=2.5, **settings):
    better = BetterActions(**settings) if settings else None
    return TD3(critic=CRITIC, gamma=0.9, imitation=Imitation(alpha=alpha, better=better))


def made_of(value=None, **settings):
    """V is the same everywhere, if it is given."""
    made = learner(update_of(**settings), FIXED)
    if value is not None:
        for weight in made.models["value"].parameters():
            nn.init.zeros_(weight)
        nn.init.constant_(list(made.models["value"].parameters())[-1], value)
    return made


def decoded(coder, seen, share, noise):
    """What a coder makes of an action, and its KL, in other words than its own."""
    mean, log_std = coder.encoder(torch.cat([seen, share], -1)).chunk(2, -1)
    log_std = log_std.clamp(-4, 15)
    code = torch.distributions.Normal(mean, log_std.exp())
    kl = torch.distributions.kl_divergence(code, torch.distributions.Normal(0.0, 1.0)).mean(-1)
    return coder.decoder(torch.cat([seen, mean + log_std.exp() * noise], -1)).tanh(), kl


def test_a2pr_is_its_equations():
    made, batch = made_of(weight=0.7, reconstruction=1.5), batch_of()
    seen, action, after, reward, lasting = parts(batch)
    facts, q, v, coder = (
        prepared(made, batch).facts,
        made.models["critic"],
        made.models["value"],
        made.models["coder"],
    )
    with torch.no_grad():
        apart = (q(seen, action)[:, 0] - v(seen)[:, 0]).mean()
        v[-1].bias.add_(apart)  # so that some actions are better than V, and others not
        noise = (0.2 * facts[SMOOTHING][:, 0]).clamp(-0.5, 0.5)
        then = (made.models["target_policy"].mode(after) + 1.5 * noise).clamp(-1.5, 1.5)
        y = [reward + 0.9 * lasting * made.models[name](after, then).min(-1).values for name in ("target", "critic")]
        good = q(seen, action)[:, 0] > v(seen)[:, 0]
        mode = made.policy.mode(seen)
        proposed = 1.5 * decoded(coder, seen, mode / 1.5, facts[PROPOSED][:, 0])[0]
        of_data, of_coder = (q(seen, x)[:, 0] - v(seen)[:, 0] for x in (action, proposed))
        aim = torch.where((of_coder >= of_data)[:, None], proposed, action)
        count = 0.7 * ((of_coder >= 0) | (of_data > 0)).float()
    assert 0 < int(good.sum()) < K and 0 < int((of_coder >= of_data).sum()) < K and len(set(count.tolist())) > 1

    of_value = (v(seen)[:, 0] - torch.minimum(*y)).square().mean()
    made_of_data, kl = decoded(coder, seen, action / 1.5, facts[CODED][:, 0])
    of_coder_loss = (1.5 * good * (made_of_data - action / 1.5).square().mean(-1) + kl / 2).mean()
    mode = 1.5 * torch.tanh(made.policy.mean(seen))
    worth = q(seen, mode)[:, 0]
    held = (count * ((mode - aim) / 1.5).square().mean(-1)).mean()
    of_policy = held - 2.5 / worth.abs().mean().detach() * worth.mean()
    found = losses(made, batch)
    assert list(found) == ["critic", "value", "coder", "policy"]
    for name, expected in {"value": of_value, "coder": of_coder_loss, "policy": of_policy}.items():
        torch.testing.assert_close(found[name].value, expected)
        torch.testing.assert_close(
            gradient(found[name].value, made.models[name]), gradient(expected, made.models[name])
        )
    told = found["policy"].metrics
    assert told["better/share"] == pytest.approx(float((of_coder >= of_data).float().mean()))
    assert told["better/weight"] == pytest.approx(float(count.mean()))


def test_where_only_the_datas_action_is_better_it_is_td3_bc(monkeypatch):
    """c = 1 and a* = a, by advantages of the data above 0 and of the coder below."""
    batch, made, plain = batch_of(), made_of(weight=1.0), learner(update_of(), FIXED)
    shown = batch.decisions.action_NSA[:, 0]

    def advantage(self, models, normal_KO, action_KA):
        return torch.full((K,), 1.0 if torch.equal(action_KA, shown) else -1.0)

    monkeypatch.setattr(BetterActions, "_advantage", advantage)
    pairs = [gradient(losses(one, batch)["policy"].value, one.policy) for one in (made, plain)]
    assert all(map(torch.equal, *pairs))


@pytest.mark.parametrize("settings", [{"weight": 0.0, "value": None}, {"weight": 1.0, "value": 1e6}])
def test_with_weight_0_or_no_action_better_than_v_it_goes_the_way_of_td3(settings):
    batch, ways = batch_of(), []
    for made in (made_of(**settings), learner(TD3(critic=CRITIC, gamma=0.9), FIXED)):
        way = torch.cat([g.flatten() for g in gradient(losses(made, batch)["policy"].value, made.policy)])
        ways.append(way / way.norm())
    torch.testing.assert_close(*ways, atol=1e-6, rtol=1e-5)


def test_critic_and_policy_draw_what_they_would_without_it():
    """The critic is TD3's bit for bit, so that arms with and without it differ in the policy's goal alone."""
    one, other = (
        losses(made, batch_of())["critic"].value for made in (made_of(weight=1.0), learner(update_of(), FIXED))
    )
    assert torch.equal(one, other)


def test_a_coder_learns_the_good_actions_alone():
    """Two actions in one state, of which one is better than V: what is decoded comes near that one, whichever goes in."""
    batch = batch_of()
    steps = batch.decisions
    sign_K = torch.arange(K) % 2 * 2.0 - 1
    action_NSA = 0.9 * sign_K[:, None, None].expand(K, 1, 2).clone()
    alike = steps.observation_NSO[:1].expand(K, 1, 3).clone()
    steps = replace(steps, observation_NSO=alike, action_NSA=action_NSA)
    batch = replace(batch, decisions=steps, reward_NS=sign_K[:, None])
    update = replace(update_of(weight=1.0), gamma=0.0, optimization=Optimization(critic_learning_rate=0.02))
    made = Learner(FIXED.load(1), update, seed=0)
    for _ in range(200):
        told = made.step(made.prepare(batch))
    assert told["coder/taught"] == pytest.approx(float((sign_K > 0).float().mean()))
    seen, noise = steps.observation_NSO[:, 0], torch.zeros(K, 4)
    for went in (-0.6, 0.6):
        came = made.models["coder"](seen, torch.full((K, 2), went), noise)[0].detach()
        assert float(came.min()) > 0.2, came


def test_codes_have_a_floor_and_a_ceiling():
    coder = ActionCoder(3, 2, (8,), 0)
    nn.init.constant_(coder.encoder[-1].bias, 1e3)
    assert bool(coder(torch.zeros(1, 3), torch.zeros(1, 2), torch.zeros(1, 4))[1].isfinite().all())


@pytest.mark.parametrize("settings", [{"weight": -1.0}, {"weight": math.nan}, {"reconstruction": 0.0}])
def test_settings_of_better_actions_that_mean_nothing_are_refused(settings):
    with pytest.raises(ValueError, match=r"weight .* and reconstruction"):
        BetterActions(**settings)
