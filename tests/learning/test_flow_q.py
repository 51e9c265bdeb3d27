"""FQL against sums taken here, its limiting cases, and which way its flow runs."""

import math
from dataclasses import replace

import pytest
import torch
from test_offline_control import K, batch_of, gradient, losses, parts, prepared

from gimbal import recipes
from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import MOVE
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.flow_q import ACTS, NEXT, START, TIME, FlowQ, Velocity
from gimbal.ops import philox
from gimbal.policies.control import Steps
from gimbal.policies.one_step import OneStep
from gimbal.records import TrainBatch
from gimbal.report.files import deterministic
from gimbal.runtime.compose import check
from gimbal.runtime.local import Trainer

PLAIN = Optimization(learning_rate=0.01, critic_learning_rate=0.01, beta1=0.0, beta2=0.0, max_grad_norm=math.inf)
SIZES = {"observations": 3, "actions": 2, "hidden": (8,)}
POLICY, CRITIC = OneStep(**SIZES, bound=1.5), ActionValues(**SIZES, bound=1.5)


def made(spec=POLICY, critic=CRITIC, **changes):
    learner = Learner(spec.load(1), FlowQ(critic=critic, optimization=PLAIN, **changes), seed=0)
    with torch.no_grad():  # a target that is not what it follows
        for weight in learner.models["target"].parameters():
            weight.add_(0.1)
    return learner


def way(learner, batch):
    """The direction of the policy's gradient."""
    found = gradient(losses(learner, batch)["policy"].value, learner.policy)
    flat = torch.cat([g.flatten() for g in found])
    return flat / flat.norm()


def drawn(learner, batch):
    """f(o, z) and F(o, z), taken here."""
    seen, z = parts(batch)[0], prepared(learner, batch).facts[ACTS][:, 0]
    x = z
    for t in (0.0, 0.25, 0.5, 0.75):
        x = x + 0.25 * learner.models["flow"].net(torch.cat([seen, x, torch.full((K, 1), t)], -1))
    return learner.policy.net(torch.cat([seen, z], -1)), x.clamp(-1, 1).detach()


def test_fql_is_its_equations():
    learner, batch = made(alpha=0.7, gamma=0.9, flow_steps=4), batch_of()
    seen, action, after, reward, lasting = parts(batch)
    facts, models = prepared(learner, batch).facts, learner.models
    start, time, later = (facts[name][:, 0] for name in (START, TIME, NEXT))
    a = 1.5 * learner.policy.net(torch.cat([after, later], -1)).clamp(-1, 1)
    y = (reward + 0.9 * lasting * models["target"](after, a).mean(-1)).detach()
    of_critic = (models["critic"](seen, action) - y[:, None]).square().mean()
    between = (1 - time) * start + time * action / 1.5
    said = models["flow"].net(torch.cat([seen, between, time], -1))
    of_flow = (said - (action / 1.5 - start)).square().mean()
    f, end = drawn(learner, batch)
    q = models["critic"](seen, 1.5 * f.clamp(-1, 1)).mean()
    of_policy = 0.7 * (f - end).square().mean() - q
    assert 0 < int(lasting.sum()) < K and float(time.min()) >= 0 and float(time.max()) < 1
    found = losses(learner, batch)
    assert list(found) == ["critic", "flow", "policy"]
    for name, expected in {"critic": of_critic, "flow": of_flow, "policy": of_policy}.items():
        torch.testing.assert_close(found[name].value, expected)
        torch.testing.assert_close(
            gradient(found[name].value, models[name]), gradient(expected, models[name]), atol=1e-6, rtol=1e-4
        )


def test_alpha_to_infinity_is_distilling_the_flow():
    """Behavior cloning in one step."""
    learner, batch = made(alpha=1e7, flow_steps=4), batch_of()
    f, end = drawn(learner, batch)
    own = torch.cat([g.flatten() for g in gradient((f - end).square().mean(), learner.policy)])
    torch.testing.assert_close(way(learner, batch), own / own.norm(), atol=1e-5, rtol=1e-4)


def test_alpha_0_is_ddpg_with_a_policy_that_draws():
    learner, batch = made(alpha=0.0), batch_of()
    f, _ = drawn(learner, batch)
    q = learner.models["critic"](parts(batch)[0], 1.5 * f.clamp(-1, 1)).mean()
    own = torch.cat([g.flatten() for g in gradient(-q, learner.policy)])
    torch.testing.assert_close(way(learner, batch), own / own.norm(), atol=1e-6, rtol=1e-4)


def test_gamma_0_fits_q_to_rewards():
    batch = batch_of()
    told = losses(made(gamma=0.0), batch)["critic"].metrics["q/target"]
    assert told == pytest.approx(float(batch.reward_NS.mean()), rel=1e-5)


def test_the_gradient_of_a_linear_policy_is_that_of_finite_differences():
    """Policy and values are linear, so the loss is a parabola in each weight while nothing is clipped: differences are exact."""
    linear = {**SIZES, "hidden": ()}
    spec, critic = OneStep(**linear, bound=1.5), ActionValues(**linear, bound=1.5)
    learner, batch = made(spec, critic, alpha=2.0), batch_of()
    with torch.no_grad():
        for weight in learner.policy.parameters():
            weight.mul_(0.1)
    weight = learner.policy.net[0].weight
    (found,) = torch.autograd.grad(losses(learner, batch)["policy"].value, [weight])
    for row, column in [(0, 0), (1, 2), (0, 3), (1, 4)]:  # of observations, and of noise
        values = []
        for step in (0.05, -0.05):
            with torch.no_grad():
                weight[row, column] += step
            values.append(float(losses(learner, batch)["policy"].value.detach()))
            with torch.no_grad():
                weight[row, column] -= step
        assert float(found[row, column]) == pytest.approx((values[0] - values[1]) / 0.1, rel=1e-2, abs=1e-4)
        assert abs(float(found[row, column])) > 1e-3


@pytest.mark.parametrize("time", [0.0, 1.0])
def test_a_flow_sees_noise_at_0_and_data_at_1(time):
    learner, batch, seen = made(), batch_of(), []
    surveyed = prepared(learner, batch)
    surveyed = surveyed.with_columns({TIME: torch.full_like(surveyed.facts[TIME], time)})
    learner.models["flow"].net[0].register_forward_pre_hook(lambda _, words: seen.append(words[0]))
    list(learner.update.losses(learner.models, surveyed))
    x = surveyed.facts[START][:, 0] if time == 0 else parts(batch)[1] / 1.5
    torch.testing.assert_close(seen[0][:, 3:5], x)
    assert bool((seen[0][:, 5] == time).all())
    assert seen[1][:, 5].unique().tolist() == [0.0] and seen[-1][:, 5].unique().tolist() == pytest.approx([0.9])


def test_euler_steps_of_a_velocity_that_is_known():
    """v = 2 t: 10 steps see t = 0, .1, ... .9 and go sum 2 t / 10 = .9 of the 1 that a flow without steps goes."""
    flow = Velocity(3, 2, (), 0)
    with torch.no_grad():
        flow.net[0].weight.zero_()[:, 5] = 2.0
        flow.net[0].bias.zero_()
    noise = torch.tensor([[-1.2, 0.05], [-3.0, 0.7]])
    expected = torch.tensor([[-0.3, 0.95], [-1.0, 1.0]])
    torch.testing.assert_close(flow.end(torch.zeros(2, 3), noise, 10).detach(), expected)


def of_actions(action_KA, reward_K, move):
    """One step each, in observations that say nothing."""
    count = len(action_KA)
    steps = Steps(
        observation_NSO=torch.zeros(count, 1, 3),
        action_NSA=action_KA[:, None],
        final_NO=torch.zeros(count, 3),
        length_N=torch.ones(count, dtype=torch.long),
        terminated_N=torch.ones(count, dtype=torch.bool),
    )
    facts = {MOVE: torch.full((count,), move)}
    mask_NS = torch.ones(count, 1, dtype=torch.bool)
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_K[:, None], decisions=steps, facts=facts)


def trained(alpha, moves=600):
    """On actions near (.9, -.3), of which larger ones of the second dimension earn more."""
    update = FlowQ(critic=CRITIC, alpha=alpha, optimization=Optimization(learning_rate=3e-3, critic_learning_rate=3e-3))
    learner, g = Learner(POLICY.load(1), update, seed=0), torch.Generator().manual_seed(0)
    for move in range(moves):
        action = torch.tensor([0.9, -0.3]) + 0.1 * torch.randn(64, 2, generator=g)
        learner.step(learner.prepare(of_actions(action, action[:, 1], move)))
    noise = learner.policy.noise(philox("after"), 1000)
    with torch.no_grad():
        flow = 1.5 * learner.models["flow"].end(torch.zeros(1000, 3), noise, 10)
        return flow, learner.policy.act(torch.zeros(1000, 3), noise)


@pytest.mark.slow
def test_a_flow_that_has_learned_ends_where_the_data_are():
    """And the policy with it, until value counts: then it goes up from there, and the flow stays."""
    for alpha, rises in ((100.0, False), (0.3, True)):
        flow, policy = trained(alpha)
        torch.testing.assert_close(flow.mean(0), torch.tensor([0.9, -0.3]), atol=0.08, rtol=0)
        assert float(flow.std(0).max()) < 0.3
        assert (float((policy - flow).mean(0)[1]) > 0.1) == rises
        assert rises or float((policy - flow).abs().mean()) < 0.1


def test_no_loss_but_its_own_moves_the_flow():
    """Values of other rewards, and another alpha, leave it as it was, bit for bit."""
    moved = []
    for alpha, scale in ((0.0, 1.0), (5.0, -30.0)):
        learner, batch = made(alpha=alpha), batch_of()
        learner.step(learner.prepare(replace(batch, reward_NS=scale * batch.reward_NS)))
        moved.append([weight.detach().clone() for weight in learner.models["flow"].parameters()])
    assert all(map(torch.equal, *moved))


def test_the_step_is_the_same_however_it_is_cut_into_micro_batches():
    moved = []
    for tokens in (16384, 2):
        rates = replace(PLAIN, optimizer="sgd", microbatch_tokens=tokens)
        learner = Learner(POLICY.load(1), FlowQ(critic=CRITIC, optimization=rates), seed=0)
        learner.step(learner.prepare(batch_of()))
        moved.append([weight.detach().clone() for weight in learner.policy.parameters()])
    torch.testing.assert_close(*moved, atol=1e-6, rtol=1e-5)


# The policy.


def test_one_step_draws_within_its_bound_and_its_mode_is_without_noise():
    policy, seen = POLICY.load(0), torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        policy.net[-1].weight.mul_(8)
    noise = policy.noise(philox("draws"), 500)
    action, near = (x.detach() for x in policy.draw(seen, noise, torch.full((500,), 4.0)))
    expected = 1.5 * policy.net(torch.cat([seen, 2 * noise], -1)).clamp(-1, 1).detach()
    torch.testing.assert_close(action, expected)
    assert bool((action.abs() == 1.5).any()) and float(action.abs().max()) == 1.5
    torch.testing.assert_close(policy.assess(seen, action, 4.0)[0].detach(), near)
    cold, said = policy.draw(seen, noise, torch.zeros(500))
    torch.testing.assert_close(cold, 1.5 * policy.net(torch.cat([seen, 0 * noise], -1)).clamp(-1, 1))
    assert not said.any()


@pytest.mark.parametrize("spec", [POLICY, replace(POLICY, normalize=True)])
def test_a_saved_policy_comes_back(spec, tmp_path):
    policy = spec.load(0)
    policy.save(tmp_path)
    again = replace(spec, hidden=(3,), bound=9.0).at(tmp_path).load(5)
    seen, noise = torch.randn(4, 3), torch.randn(4, 2)
    assert torch.equal(again.act(seen, noise), policy.act(seen, noise)) and again.bound == 1.5


def test_what_stands_for_a_log_probability_shows_whose_weights_they_are():
    one, other = POLICY.load(0), POLICY.load(1)
    seen, action = torch.randn(4, 3), torch.rand(4, 2)
    assert bool((one.assess(seen, action, 1.0)[0] - other.assess(seen, action, 1.0)[0]).abs().min() > 1e-4)


@pytest.mark.parametrize("changes", [{"alpha": -1.0}, {"alpha": math.inf}, {"alpha": math.nan}, {"flow_steps": 0}])
def test_settings_that_mean_nothing_are_refused(changes):
    with pytest.raises(ValueError, match="FlowQ has alpha"):
        FlowQ(critic=CRITIC, **changes)


def test_it_goes_on_online_with_recorded_episodes_beside_its_own():
    """The same losses on what its own policy does (gimbal train rlpd with this policy and update)."""
    base, own = recipes.load("rlpd"), recipes.load("fql")
    store = replace(base.store, minibatch=16, learning_starts=0)
    run = replace(base, policy=own.policy, update=own.update, store=store, held_out=None, steps=2)
    trainer = Trainer(run)
    trainer.begin()
    told = [trainer.advance()[0] for _ in range(2)][-1]
    trainer.close()
    assert told["replay/prior"] == 0.5 and told["imitation/error"] > 0 and told["flow/loss"] > 0


def test_other_data_give_policy_and_critic_their_sizes_and_bound():
    run = recipes.load("fql", {"tasks": "gimbal/maze/stitch-v0"})
    assert (run.policy.observations, run.policy.actions) == (run.update.critic.observations, run.update.critic.actions)
    assert run.policy.actions == 2 and run.policy.bound == run.update.critic.bound != 2.0
    assert check(run) == []


def test_a_resumed_run_goes_on_to_the_same_bits(tmp_path, single_thread):
    own = recipes.load("fql")
    run = replace(own, store=replace(own.store, moves=4, minibatch=16), held_out=None, steps=3)
    trainer = Trainer(run)
    trainer.begin()
    trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path, {}))
    assert deterministic(resumed.advance()[0]) == deterministic(trainer.advance()[0])
    for name, module in trainer.learner.models.modules.items():
        pairs = zip(module.parameters(), resumed.learner.models[name].parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs), name
    trainer.close(), resumed.close()
