"""DSRL against sums taken here, its limiting cases, and that its flow is another run's, never moves and comes back."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_offline_control import batch_of, gradient, losses, parts, prepared

from gimbal import recipes
from gimbal.critics.actions import ActionValues
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.soft_actor_critic import ACTS, NEXT
from gimbal.learning.updates.steered_flow import PASSED, SteeredFlow
from gimbal.policies.best_of import BestOf
from gimbal.policies.squashed import SquashedGaussian
from gimbal.policies.steered import Steered
from gimbal.runtime import compose
from gimbal.runtime.local import Trainer

PLAIN = Optimization(learning_rate=0.01, critic_learning_rate=0.01, beta1=0.0, beta2=0.0, max_grad_norm=math.inf)
SIZES = {"observations": 3, "actions": 2, "hidden": (8,), "bound": 1.5}
SPEC = Steered(**SIZES, flow_steps=3, reach=1.2)


def steered(spec=SPEC, **changes):
    update = SteeredFlow(critic=ActionValues(**SIZES), optimization=PLAIN, **{"gamma": 0.9, "alpha": 0.3, **changes})
    learner = Learner(spec.load(1), update, seed=0)
    with torch.no_grad():  # a target that is not what it follows
        for weight in learner.models["target"].parameters():
            weight.add_(0.1)
    return learner


def leads(policy, seen, noise):
    """Three Euler steps, taken here."""
    x = noise
    for step in range(3):
        time = torch.full_like(x[:, :1], step / 3)
        x = x + policy.flow.net(torch.cat([seen, x, time], -1)) / 3
    return 1.5 * x.clamp(-1, 1)


def chosen(policy, seen, noise):
    mean, log_std = policy.chooser.moments(seen).chunk(2, -1)
    u = mean + log_std.clamp(-5, 2).exp() * noise
    base = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    return 1.2 * u.tanh(), (base.log_prob(u) - (1 - u.tanh().square()).log()).sum(-1)


def test_dsrl_is_its_equations():
    learner, batch = steered(entropy=0.5), batch_of()
    models, policy = learner.models, learner.policy
    facts = prepared(learner, batch).facts
    acts, after_noise, passed = (facts[name][:, 0] for name in (ACTS, NEXT, PASSED))
    seen, action, after, reward, lasting = parts(batch)
    with torch.no_grad():
        next_action = leads(policy, after, chosen(policy, after, after_noise)[0])
        y = reward + 0.9 * lasting * models["target"](after, next_action).min(-1).values
        goal = models["critic"](seen, leads(policy, seen, passed))
    of_critic = (models["critic"](seen, action) - y[:, None]).square().sum(-1).mean()
    of_latent = (models["latent"](seen, passed) - goal).square().sum(-1).mean()
    w, logprob = chosen(policy, seen, acts)
    of_policy = (0.3 * logprob - models["latent"](seen, w).min(-1).values).mean()
    log_alpha = models["temperature"].log
    of_policy = of_policy - log_alpha * (logprob.detach() + 0.5).mean()

    found = losses(learner, batch)
    assert list(found) == ["critic", "latent", "policy"] and found["policy"].of == ("policy", "temperature")
    pairs = {"critic": (of_critic, models["critic"]), "latent": (of_latent, models["latent"])}
    pairs["policy"] = of_policy, policy.chooser
    for name, (expected, model) in pairs.items():
        torch.testing.assert_close(found[name].value, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradient(found[name].value, model), gradient(expected, model), rtol=1e-3, atol=1e-5)
    assert found["latent"].metrics["latent/error"] == pytest.approx(of_latent.item() / 2, rel=1e-5)
    errors = learner.update.errors(models, prepared(learner, batch))
    torch.testing.assert_close(errors, (models["critic"](seen, action) - y[:, None]).abs().mean(-1))


def test_with_gamma_0_q_is_fitted_to_rewards():
    learner, batch = steered(gamma=0.0), batch_of()
    assert losses(learner, batch)["critic"].metrics["q/target"] == pytest.approx(
        float(batch.reward_NS.mean()), abs=1e-6
    )


def test_where_the_flow_is_the_identity_an_action_is_its_noise():
    policy = replace(SPEC, reach=0.5).load(0)
    for weight in policy.flow.parameters():
        weight.data.zero_()
    noise = torch.linspace(-0.9, 0.9, 8).reshape(4, 2)
    assert torch.allclose(policy.act(torch.randn(4, 3), noise), 1.5 * noise)
    seen, warm = torch.randn(4, 3), torch.ones(4)
    plain = SquashedGaussian(**{**SIZES, "bound": 0.5}).load(0)
    plain.load_state_dict(policy.chooser.state_dict())
    torch.testing.assert_close(policy.draw(seen, noise, warm)[0], 1.5 * plain.draw(seen, noise, warm)[0])


def test_a_step_moves_all_but_the_flow():
    learner = steered()
    before = {name: {k: x.clone() for k, x in m.state_dict().items()} for name, m in learner.models.modules.items()}
    learner.step(learner.prepare(batch_of()))
    for name, module in learner.models.modules.items():
        for key, x in module.state_dict().items():
            assert torch.equal(x, before[name][key]) == key.startswith("flow."), (name, key)


def saved(tmp_path, **changes):
    policy = BestOf(**{**SIZES, "hidden": (16,), **changes}, proposals=1).load(3)
    policy.save(tmp_path / "flow")
    return policy, str(tmp_path / "flow")


def test_the_flow_is_that_of_the_run_that_trained_it_whatever_the_sizes_here(tmp_path):
    teacher, flow = saved(tmp_path)
    policy = replace(SPEC, flow=flow).load(0)
    seen, noise = torch.randn(5, 3), torch.randn(5, 2)
    assert torch.equal(policy.act(seen, noise), 1.5 * teacher.flow.end(seen, noise, 3))
    policy.save(tmp_path / "steered")
    again = replace(SPEC, model=str(tmp_path / "steered")).load(1)
    warm = torch.ones(5)
    assert torch.equal(again.draw(seen, noise, warm)[0], policy.draw(seen, noise, warm)[0])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bound": 1.0}, r"has bound 1\.0, and in this environment it must be 1\.5: train one here"),
        ({"normalize": True}, r"has normalize True, and in this environment it must be False"),
    ],
)
def test_a_flow_of_another_environment_is_refused(tmp_path, changes, said):
    _, flow = saved(tmp_path, **changes)
    with pytest.raises(ValueError, match=said):
        replace(SPEC, flow=flow).load(0)
    SquashedGaussian(**SIZES).load(0).save(tmp_path / "none")
    with pytest.raises(ValueError, match=r"holds no flow.*a run of idql or expo saved"):
        replace(SPEC, flow=str(tmp_path / "none")).load(0)
    with pytest.raises(ValueError, match="reach -1"):
        replace(SPEC, reach=-1.0)


def test_its_sizes_are_the_environment_s_and_no_update_reads_its_density():
    run = recipes.load("dsrl")
    with pytest.raises(ValueError, match="without a density"):
        compose.check(replace(run, update=recipes.load("sac").update))
    maze = recipes.load("dsrl", {"tasks.environment": "MountainCarContinuous-v0"})
    assert (maze.policy.observations, maze.update.critic.observations, maze.policy.bound) == (2, 2, 1.0)


@pytest.mark.slow
def test_a_bandit_is_steered_to_its_better_mode(tmp_path):
    """A flow that leads to -1 or to 1 by the sign of its noise; 1 pays. Not one weight of the flow says which."""

    class Sign(torch.nn.Module):
        def forward(self, observation, x, time):
            return torch.where(time > 0.5, 10 * torch.sign(x), 0 * x)

    spec = replace(SPEC, observations=3, actions=1, flow_steps=10)
    update = SteeredFlow(
        critic=ActionValues(observations=3, actions=1, hidden=(32,), bound=1.5),
        gamma=0.0,
        alpha=0.1,
        optimization=Optimization(learning_rate=3e-3, critic_learning_rate=3e-3, max_grad_norm=math.inf),
    )
    learner = Learner(spec.load(1), update, seed=0)
    learner.policy.flow.forward = Sign().forward
    batch = batch_of()
    g = torch.Generator().manual_seed(0)
    for _ in range(200):
        way = torch.sign(torch.randn(batch.shape[0], 1, 1, generator=g))
        steps = replace(batch.decisions, action_NSA=1.5 * way)
        learner.step(learner.prepare(replace(batch, decisions=steps, reward_NS=(way[..., 0] > 0).float())))
    seen, noise = batch.decisions.observation_NSO[:, 0], torch.randn(batch.shape[0], 1, generator=g)
    assert float((learner.policy.draw(seen, noise, torch.ones(len(seen)))[0] > 0).float().mean()) > 0.9


def test_a_small_run_steers():
    run = recipes.load("dsrl", {"held_out": None, "store.learning_starts": 0, "store.minibatch": 16})
    trainer = Trainer(run)
    trainer.begin()
    metrics, *_ = trainer.advance()
    assert metrics["steer/size"] > 0 and metrics["latent/error"] > 0 and "entropy/sampled" not in metrics
    trainer.close()


@pytest.mark.parametrize(
    ("file", "held", "said"),
    [
        ("model.safetensors", b"cut", "cannot be read, so it is missing or damaged"),
        ("config.json", b'{"edits": ', "config.json is not JSON"),
        (
            "config.json",
            b'{"edits": false, "hidden": [16]}',
            "has observations None, and in this environment it must be",
        ),
        ("config.json", b"[]", "holds no configuration; policy.flow must be"),
    ],
)
def test_a_damaged_flow_is_named(tmp_path, file, held, said):
    _, flow = saved(tmp_path)
    (Path(flow) / file).write_bytes(held)
    with pytest.raises(ValueError, match=said):
        replace(SPEC, flow=str(flow)).load(0)


def test_a_policy_of_another_kind_is_named(tmp_path):
    _, flow = saved(tmp_path)
    for spec in (replace(SPEC, model=str(flow)), SquashedGaussian(**SIZES, model=str(flow))):
        with pytest.raises(ValueError, match="was saved by another kind of policy than S"):
            spec.load(0)
