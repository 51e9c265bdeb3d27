"""BC, TD3+BC, CQL and IQL against sums taken here, and their limiting cases."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import MOVE
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.behavior_cloning import BehaviorCloning
from gimbal.learning.updates.implicit_q import ImplicitQ, expectile_loss
from gimbal.learning.updates.soft_actor_critic import ANYWHERE, HERE, THERE, Conservative, SoftActorCritic
from gimbal.learning.updates.td3 import TD3, Imitation
from gimbal.policies.categorical import Categorical
from gimbal.policies.control import Steps
from gimbal.policies.deterministic import Deterministic
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import TrainBatch

K = 7
PLAIN = Optimization(learning_rate=0.01, critic_learning_rate=0.01, beta1=0.0, beta2=0.0, max_grad_norm=math.inf)
SIZES = {"observations": 3, "actions": 2, "hidden": (8,)}
CRITIC = ActionValues(**SIZES, bound=1.5)
FIXED, DRAWN = Deterministic(**SIZES, bound=1.5), Gaussian(**SIZES, log_std=-0.3)
SQUASHED = SquashedGaussian(**SIZES, bound=1.5)


def batch_of(move=1, choices=0):
    g = torch.Generator().manual_seed(0)
    action_NSA = torch.randint(choices, (K, 1, 1), generator=g) if choices else torch.randn(K, 1, 2, generator=g).tanh()
    steps = Steps(
        observation_NSO=torch.randn(K, 1, 3, generator=g),
        action_NSA=action_NSA,
        final_NO=torch.randn(K, 3, generator=g),
        length_N=torch.ones(K, dtype=torch.long),
        terminated_N=torch.arange(K) % 3 == 0,
    )
    reward_NS = torch.randn(K, 1, generator=g)
    facts = {MOVE: torch.full((K,), move)}
    return TrainBatch(mask_NS=torch.ones(K, 1, dtype=torch.bool), reward_NS=reward_NS, decisions=steps, facts=facts)


def learner(update, spec):
    made = Learner(spec.load(1), replace(update, optimization=PLAIN), seed=0)
    with torch.no_grad():  # targets that are not what they follow
        for name in ("target", "target_policy"):
            for weight in made.models[name].parameters() if name in made.models else ():
                weight.add_(0.1)
    return made


def prepared(made, batch):
    return made.update.survey(made.models, made.prepare(batch))[0]


def losses(made, batch):
    return {loss.of[0]: loss for loss in made.update.losses(made.models, prepared(made, batch))}


def gradient(loss, model):
    return torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)


def parts(batch):
    steps = batch.decisions
    return (
        steps.observation_NSO[:, 0],
        steps.action_NSA[:, 0],
        steps.final_NO,
        batch.reward_NS[:, 0],
        (~steps.terminated_N).float(),
    )


# Behavior cloning.


def test_behavior_cloning_is_its_equations():
    batch = batch_of()
    seen, action, *_ = parts(batch)
    fixed = learner(BehaviorCloning(), FIXED)
    expected = nn.functional.mse_loss(torch.tanh(fixed.policy.mean(seen)), action / 1.5)
    torch.testing.assert_close(
        gradient(losses(fixed, batch)["policy"].value, fixed.policy), gradient(expected, fixed.policy)
    )
    drawn = learner(BehaviorCloning(), DRAWN)
    density = Normal(drawn.policy.mean(seen), drawn.policy.log_std_A.exp()).log_prob(action).sum(-1)
    torch.testing.assert_close(losses(drawn, batch)["policy"].value, -density.mean())


def test_behavior_cloning_of_choices():
    batch, made = batch_of(choices=4), learner(BehaviorCloning(), Categorical(observations=3, actions=4, hidden=(8,)))
    seen, action, *_ = parts(batch)
    expected = nn.functional.cross_entropy(made.policy.logits(seen), action[:, 0])
    torch.testing.assert_close(losses(made, batch)["policy"].value, expected)


def test_a_deterministic_policy_takes_the_mean_of_what_is_done():
    """Behavior cloning's limiting case: two actions in one observation."""
    batch = batch_of()
    steps = batch.decisions
    alike = steps.observation_NSO[:1].expand(K, 1, 3).clone()
    batch = replace(batch, decisions=replace(steps, observation_NSO=alike))
    made = Learner(FIXED.load(1), BehaviorCloning(optimization=Optimization(learning_rate=0.02)), seed=0)
    for _ in range(400):
        made.step(made.prepare(batch))
    torch.testing.assert_close(
        made.policy.mode(alike[0, :1, :].reshape(1, 3))[0], steps.action_NSA[:, 0].mean(0), atol=0.02, rtol=0
    )


# TD3+BC.


@pytest.mark.parametrize("alpha", [2.5, 0.3])
def test_td3_bc_is_its_equations(alpha):
    made, batch = learner(TD3(critic=CRITIC, imitation=Imitation(alpha=alpha)), FIXED), batch_of()
    seen, action, *_ = parts(batch)
    mode = 1.5 * torch.tanh(made.policy.mean(seen))
    q = made.models["critic"](seen, mode)[:, 0]
    expected = -alpha / q.abs().mean().detach() * q.mean() + nn.functional.mse_loss(mode / 1.5, action / 1.5)
    found = losses(made, batch)["policy"].value
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient(found, made.policy), gradient(expected, made.policy))


def test_td3_bc_without_value_is_behavior_cloning():
    batch = batch_of()
    one, other = learner(TD3(critic=CRITIC, imitation=Imitation(alpha=0.0)), FIXED), learner(BehaviorCloning(), FIXED)
    assert all(map(torch.equal, *(gradient(losses(made, batch)["policy"].value, made.policy) for made in (one, other))))


def test_td3_bc_with_much_value_goes_the_way_of_td3():
    batch, ways = batch_of(), []
    for imitation in (Imitation(alpha=1e7), None):
        made = learner(TD3(critic=CRITIC, imitation=imitation), FIXED)
        way = torch.cat([g.flatten() for g in gradient(losses(made, batch)["policy"].value, made.policy)])
        ways.append(way / way.norm())
    torch.testing.assert_close(*ways, atol=1e-5, rtol=1e-4)


def test_imitation_touches_neither_critic_nor_the_moves_between():
    with_it, without = (learner(TD3(critic=CRITIC, imitation=one), FIXED) for one in (Imitation(), None))
    for made in (with_it, without):
        assert list(losses(made, batch_of(move=0))) == ["critic"]
    one, other = (losses(made, batch_of())["critic"].value for made in (with_it, without))
    assert torch.equal(one, other)


def test_the_scale_is_of_the_whole_minibatch():
    """However it is cut into micro-batches the step is the same."""
    moved = []
    for tokens in (16384, 2):
        update = TD3(
            critic=CRITIC, imitation=Imitation(), optimization=replace(PLAIN, optimizer="sgd", microbatch_tokens=tokens)
        )
        made = Learner(FIXED.load(1), update, seed=0)
        made.step(made.prepare(batch_of()))
        moved.append([weight.detach().clone() for weight in made.policy.parameters()])
    torch.testing.assert_close(*moved, atol=1e-6, rtol=1e-5)


# CQL.


def test_cql_is_its_equations():
    conservative = Conservative(weight=0.7, actions=4)
    made, batch = learner(SoftActorCritic(critic=CRITIC, conservative=conservative), SQUASHED), batch_of()
    plain = learner(SoftActorCritic(critic=CRITIC), SQUASHED)
    surveyed = prepared(made, batch)
    seen, action, after, *_ = parts(batch)
    q, total = made.models["critic"], 0.0
    for row in range(K):
        held = []
        for name, place in ((ANYWHERE, None), (HERE, seen), (THERE, after)):
            for noise in surveyed.facts[name][row, 0].reshape(4, 2):
                if place is None:
                    taken, density = 1.5 * noise, torch.tensor(2 * math.log(1 / 2))
                else:
                    mean, log_std = made.policy.moments(place[row]).chunk(2)
                    u = mean + log_std.clamp(-5, 2).exp() * noise
                    slope = (1 - u.tanh().square()).log()
                    taken = 1.5 * u.tanh()
                    density = (Normal(mean, log_std.clamp(-5, 2).exp()).log_prob(u) - slope).sum()
                held.append((q(seen[row : row + 1], taken[None].detach())[0], density.detach()))
        values = torch.stack([value - density for value, density in held])
        total = (
            total + (values.logsumexp(0) - math.log(12) - q(seen[row : row + 1], action[row : row + 1])[0]).sum() / K
        )
    ours = losses(made, batch)["critic"].value - losses(plain, batch)["critic"].value
    torch.testing.assert_close(ours, 0.7 * total.detach(), atol=1e-4, rtol=1e-4)
    own = gradient(losses(plain, batch)["critic"].value, plain.models["critic"])
    beside = gradient(0.7 * total, q)
    torch.testing.assert_close(
        gradient(losses(made, batch)["critic"].value, q), tuple(map(torch.add, own, beside)), atol=1e-4, rtol=1e-3
    )


def test_several_actions_of_an_observation_are_those_of_as_many_observations():
    policy, g = SQUASHED.load(1), torch.Generator().manual_seed(1)
    seen_KO, noise_XA = torch.randn(K, 3, generator=g), torch.randn(K * 4, 2, generator=g)
    found, wanted = policy.sample(seen_KO, noise_XA), policy.sample(seen_KO.repeat_interleave(4, 0), noise_XA)
    torch.testing.assert_close(found, wanted)


def test_cql_without_weight_is_sac():
    batch, moved = batch_of(), []
    for conservative in (Conservative(weight=0.0, actions=3), None):
        made = learner(SoftActorCritic(critic=CRITIC, conservative=conservative), SQUASHED)
        for _ in range(3):
            made.step(made.prepare(batch))
        moved.append([weight.detach() for name in ("policy", "critic") for weight in made.models[name].parameters()])
    assert all(map(torch.equal, *moved))


def test_a_value_that_is_the_same_for_all_actions_is_the_volume_of_them():
    """log int da over [-1, 1]^2 is 2 log 2 where the actions are uniform; an estimate by a policy's own scatters around it."""
    made, batch = learner(SoftActorCritic(critic=CRITIC, conservative=Conservative(actions=3000)), SQUASHED), batch_of()
    with torch.no_grad():
        for weight in made.models["critic"].weights:
            weight.zero_()
    surveyed = prepared(made, batch)
    q_KM = made.models["critic"](batch.decisions.observation_NSO[:, 0], batch.decisions.action_NSA[:, 0])
    gap_K = made.update.conservative.penalty(made.models, surveyed, q_KM)
    torch.testing.assert_close(gap_K, torch.full((K,), 2 * 2 * math.log(2)), atol=0.15, rtol=0)


def test_cql_lowers_what_data_do_not_show_below_what_they_do():
    batch, gaps = batch_of(), []
    for weight in (0.0, 5.0):
        update = SoftActorCritic(critic=CRITIC, conservative=Conservative(weight=weight, actions=5))
        made = Learner(SQUASHED.load(1), replace(update, optimization=Optimization(critic_learning_rate=0.01)), seed=0)
        for _ in range(60):
            told = made.step(made.prepare(batch))
        gaps.append(told["q/gap"])
    assert gaps[1] < gaps[0] - 0.5


# IQL.


@pytest.mark.parametrize("spec", [DRAWN, SQUASHED], ids=["Gaussian", "Squashed"])
def test_iql_is_its_equations(spec):
    made, batch = learner(ImplicitQ(critic=CRITIC, expectile=0.8, beta=1.7, most=1.5, gamma=0.9), spec), batch_of()
    seen, action, after, reward, lasting = parts(batch)
    worth = made.models["target"](seen, action).min(-1).values.detach()
    v = made.models["value"]
    apart = worth - v(seen)[:, 0]
    of_value = sum((0.8 if x > 0 else 0.2) * x**2 for x in apart) / K
    weight = (1.7 * apart.detach()).exp()
    assert bool((weight > 1.5).any()) and bool((weight < 1.5).any()), "some of them are clipped"
    of_policy = -(weight.clamp(max=1.5) * made.policy.assess(seen, action, 1.0)[0]).mean()
    y = reward + 0.9 * lasting * v(after)[:, 0].detach()
    of_critic = (made.models["critic"](seen, action) - y[:, None]).square().sum(-1).mean()
    for name, expected in {"value": of_value, "policy": of_policy, "critic": of_critic}.items():
        found = losses(made, batch)[name].value
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradient(found, made.models[name]), gradient(expected, made.models[name]))


def test_iql_with_half_an_expectile_is_a_mean():
    apart = torch.tensor([-2.0, 0.5, 3.0])
    torch.testing.assert_close(expectile_loss(apart, 0.5), apart.square() / 2)


@pytest.mark.parametrize(("expectile", "least", "most"), [(0.5, -0.05, 0.05), (0.9, 0.5, 0.9), (0.1, -0.9, -0.5)])
def test_the_expectile_of_a_fair_coin(expectile, least, most):
    """Of +1 and -1, (2 tau - 1): 0, .8, -.8."""
    v = torch.zeros((), requires_grad=True)
    coin = torch.tensor([1.0, -1.0])
    for _ in range(500):
        (slope,) = torch.autograd.grad(expectile_loss(coin - v, expectile).mean(), v)
        v = (v - 0.2 * slope).detach().requires_grad_()
    assert least < float(v.detach()) < most and float(v.detach()) == pytest.approx(2 * expectile - 1, abs=0.01)


def test_iql_with_beta_0_is_behavior_cloning():
    batch = batch_of()
    one, other = learner(ImplicitQ(critic=CRITIC, beta=0.0), DRAWN), learner(BehaviorCloning(), DRAWN)
    assert all(map(torch.equal, *(gradient(losses(made, batch)["policy"].value, made.policy) for made in (one, other))))


def test_iql_never_asks_for_an_action_that_is_not_in_the_data():
    """Its critic is only ever given recorded actions."""
    made, batch = learner(ImplicitQ(critic=CRITIC), DRAWN), batch_of()
    asked = []
    for name in ("critic", "target"):
        made.models[name].register_forward_pre_hook(lambda module, words: asked.append(words[1]))
    made.step(made.prepare(batch))
    assert len(asked) == 2 and all(torch.equal(action, batch.decisions.action_NSA[:, 0]) for action in asked)


def test_without_a_future_values_are_of_rewards():
    made, batch = learner(ImplicitQ(critic=CRITIC, gamma=0.0), DRAWN), batch_of()
    assert losses(made, batch)["critic"].metrics["q/target"] == pytest.approx(float(batch.reward_NS.mean()))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ImplicitQ(critic=CRITIC, expectile=1.0),
        lambda: ImplicitQ(critic=CRITIC, beta=-1.0),
        lambda: ImplicitQ(critic=CRITIC, beta=math.nan),
        lambda: Imitation(alpha=math.inf),
        lambda: Imitation(alpha=math.nan),
        lambda: Conservative(weight=-1.0),
        lambda: Conservative(actions=0),
    ],
)
def test_settings_that_mean_nothing_are_refused(make):
    with pytest.raises(ValueError, match=r"expectile|alpha|weight|beta"):
        make()
