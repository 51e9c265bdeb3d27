"""IDQL and EXPO against sums taken here, their limiting cases, and what their policies are given to score by."""

import math
from dataclasses import replace

import pytest
import torch
from test_flow_q import of_actions
from test_offline_control import K, batch_of, gradient, losses, parts, prepared
from torch.distributions import Normal

from gimbal import recipes
from gimbal.config import Text
from gimbal.critics.actions import ActionValues
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.dyna import Dyna
from gimbal.learning.updates.edited_flow import EDIT, EditedFlow
from gimbal.learning.updates.flow_q import NEXT, START, TIME
from gimbal.learning.updates.implicit_flow import ImplicitFlow
from gimbal.learning.updates.implicit_q import ImplicitQ
from gimbal.ops import philox
from gimbal.policies.best_of import BestOf
from gimbal.policies.dynamics import Dynamics
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.picks import ByExpectile
from gimbal.report.files import deterministic
from gimbal.runtime.compose import check
from gimbal.runtime.evaluate import evaluate_held_out
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut

PLAIN = Optimization(learning_rate=0.01, critic_learning_rate=0.01, beta1=0.0, beta2=0.0, max_grad_norm=math.inf)
SIZES = {"observations": 3, "actions": 2, "hidden": (8,), "bound": 1.5}
CRITIC, THREE = ActionValues(**SIZES), ActionValues(**SIZES, members=3)
WEIGHED = BestOf(**SIZES, proposals=4, flow_steps=3, pick=ByExpectile(expectile=0.8))
EDITED = BestOf(**SIZES, proposals=4, flow_steps=3, edit=0.25, score="mean", members=3)


def implicit(spec=WEIGHED, **changes):
    return learner_of(ImplicitFlow(critic=CRITIC, **{"expectile": 0.8, "gamma": 0.9, **changes}), spec)


def edited(spec=EDITED, **changes):
    return learner_of(EditedFlow(critic=THREE, **{"gamma": 0.9, "subset": 0, **changes}), spec)


def learner_of(update, spec):
    learner = Learner(spec.load(1), replace(update, optimization=PLAIN), seed=0)
    with torch.no_grad():  # a target that is not what it follows
        for weight in learner.models["target"].parameters():
            weight.add_(0.1)
    return learner


def of_flow(learner, batch):
    """mean_A (v - (a / b - x_0))^2, taken here."""
    seen, action, *_ = parts(batch)
    facts = prepared(learner, batch).facts
    start, time = (facts[name][:, 0] for name in (START, TIME))
    between = (1 - time) * start + time * action / 1.5
    said = learner.policy.flow.net(torch.cat([seen, between, time], -1))
    return (said - (action / 1.5 - start)).square().mean()


def same(loss, expected, model):
    torch.testing.assert_close(loss, expected)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for found, other in zip(
        torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True),
        torch.autograd.grad(expected, weights, retain_graph=True, allow_unused=True),
        strict=True,
    ):
        if found is not None or other is not None:
            torch.testing.assert_close(found, other, atol=1e-6, rtol=1e-4)


# IDQL.


def test_idql_is_its_equations():
    learner, batch = implicit(), batch_of()
    seen, action, after, reward, lasting = parts(batch)
    models = learner.models
    q = models["target"](seen, action).min(-1).values.detach()
    above = q - models["value"](seen)[:, 0]
    of_value = (torch.where(above < 0, 0.2, 0.8) * above.square()).mean()
    y = (reward + 0.9 * lasting * models["value"](after)[:, 0]).detach()
    of_critic = (models["critic"](seen, action) - y[:, None]).square().sum(-1).mean()
    found = losses(learner, batch)
    assert list(found) == ["value", "policy", "critic"]
    same(found["value"].value, of_value, models["value"])
    same(found["policy"].value, of_flow(learner, batch), learner.policy)
    same(found["critic"].value, of_critic, models["critic"])


def test_its_values_are_those_of_iql_bit_for_bit():
    batch = batch_of()
    other = Learner(
        Gaussian(observations=3, actions=2, hidden=(8,)).load(1),
        ImplicitQ(critic=CRITIC, expectile=0.8, gamma=0.9, optimization=PLAIN),
        seed=0,
    )
    own = Learner(WEIGHED.load(1), replace(implicit().update), seed=0)
    for learner in (own, other):
        for _ in range(3):
            learner.step(learner.prepare(batch))
    for name in ("value", "critic", "target"):
        pairs = zip(own.models[name].parameters(), other.models[name].parameters(), strict=True)
        assert all(torch.equal(*pair) for pair in pairs), name


def test_an_expectile_of_a_half_is_the_mean_and_gamma_0_fits_q_to_rewards():
    batch = batch_of()
    learner = implicit(replace(WEIGHED, pick=ByExpectile(expectile=0.5)), expectile=0.5, gamma=0.0)
    seen, action, *_ = parts(batch)
    above = learner.models["target"](seen, action).min(-1).values.detach() - learner.models["value"](seen)[:, 0]
    found = losses(learner, batch)
    same(found["value"].value, 0.5 * above.square().mean(), learner.models["value"])
    assert found["critic"].metrics["q/target"] == pytest.approx(float(batch.reward_NS.mean()), rel=1e-5)


def test_no_value_reaches_the_flow():
    """Of other rewards, at another expectile, it is the same bit for bit: the policy is better than the data only when it acts."""
    moved = []
    for scale, expectile in ((1.0, 0.8), (-30.0, 0.6)):
        learner, batch = implicit(expectile=expectile), batch_of()
        learner.step(learner.prepare(replace(batch, reward_NS=scale * batch.reward_NS)))
        moved.append([weight.detach().clone() for weight in learner.policy.flow.parameters()])
    assert all(map(torch.equal, *moved))


@pytest.mark.parametrize("make", [implicit, edited])
def test_the_policy_scores_by_what_the_update_holds_after_each_step(make):
    learner, batch = make(), batch_of()
    seen, action, *_ = parts(batch)
    for _ in range(2):
        learner.step(learner.prepare(batch))
        with torch.no_grad():
            assert torch.equal(learner.policy.judge(seen, action), learner.models["target"](seen, action))
            if learner.policy.value is not None:
                assert torch.equal(learner.policy.value(seen), learner.models["value"](seen))


def scores_by(policy, learner):
    """Whether the policy's copies are the update's critic and V."""
    pairs = [(policy.judge, "target")] + ([] if policy.value is None else [(policy.value, "value")])
    return all(
        torch.equal(own, other)
        for copied, name in pairs
        for own, other in zip(copied.parameters(), learner.models[name].parameters(), strict=True)
    )


@pytest.mark.parametrize(
    ("update", "spec"), [(ImplicitFlow(critic=CRITIC), WEIGHED), (EditedFlow(critic=THREE), EDITED)]
)
def test_the_policy_scores_by_what_the_update_holds_before_the_first_step(update, spec):
    policy = spec.load(1)
    learner = Learner(policy, replace(update, optimization=PLAIN), seed=0)
    assert scores_by(policy, learner)
    inside = Learner(spec.load(1), Dyna(inside=update, world=Dynamics(observations=3, actions=2)), seed=0)
    assert scores_by(inside.policy, inside)


def test_beside_a_learned_world_it_scores_by_the_newest_critic_too():
    inside = EditedFlow(critic=THREE, subset=0, optimization=PLAIN)
    learner = Learner(EDITED.load(1), Dyna(inside=inside, world=Dynamics(observations=3, actions=2), horizon=0), seed=0)
    learner.step(learner.prepare(batch_of()))
    for own, other in zip(learner.policy.judge.parameters(), learner.models["target"].parameters(), strict=True):
        assert torch.equal(own, other)


def test_the_gain_of_the_best_proposal_is_told():
    learner, batch = implicit(), batch_of()
    told = learner.step(learner.prepare(batch))["proposals/gain"]
    policy = learner.policy
    noise = policy.noise(philox(0, "proposals", 1), K)
    with torch.no_grad():
        score = policy.scores(policy.judge, parts(batch)[0], policy.propose(parts(batch)[0], noise))
    assert told == pytest.approx(float((score.max(-1).values - score.mean(-1)).mean()), rel=1e-4) and told > 0
    alone = implicit(replace(WEIGHED, proposals=1))
    assert alone.step(alone.prepare(batch))["proposals/gain"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_the_best_of_its_proposals_is_the_better_of_two_modes():
    """Actions near -.9 and .9, of which the latter earn more: the flow keeps both, the policy plays one."""
    spec = BestOf(**{**SIZES, "actions": 1}, proposals=16, pick=ByExpectile(expectile=0.8))
    critic = ActionValues(**{**SIZES, "actions": 1})
    rates = Optimization(learning_rate=3e-3, critic_learning_rate=3e-3)
    update = ImplicitFlow(critic=critic, expectile=0.8, tau=0.05, optimization=rates)
    learner, g = Learner(spec.load(1), update, seed=0), torch.Generator().manual_seed(0)
    for move in range(600):
        action = torch.where(torch.rand(64, 1, generator=g) < 0.5, 0.9, -0.9) + 0.1 * torch.randn(64, 1, generator=g)
        learner.step(learner.prepare(of_actions(action, (action[:, 0] > 0).float(), move)))
    policy, seen = learner.policy, torch.zeros(500, 3)
    noise = policy.noise(philox("after"), 500)
    with torch.no_grad():
        flow = policy.propose(seen, noise)[:, 0, 0]
        best, drawn = (policy.draw(seen, noise, torch.full((500,), t))[0][:, 0] for t in (0.0, 1.0))
    cloned, picked, played = (float((action > 0).float().mean()) for action in (flow, drawn, best))
    assert 0.35 < cloned < 0.65 and played > 0.95
    assert cloned + 0.1 < picked < 0.95, "at most four fifths, by the weights of the expectile"


# EXPO.


def proposed(learner, batch):
    """The proposals in o', and which of them the target policy takes."""
    policy, after = learner.policy, parts(batch)[2]
    share = policy.propose(after, prepared(learner, batch).facts[NEXT][:, 0])
    score = torch.stack([learner.models["target"](after, 1.5 * share[:, p]).mean(-1) for p in range(share.shape[1])], 1)
    return share.detach(), score.detach()


def test_expo_is_its_equations():
    learner, batch = edited(), batch_of()
    seen, action, after, reward, lasting = parts(batch)
    models, policy, facts = learner.models, learner.policy, prepared(learner, batch).facts
    share, score = proposed(learner, batch)
    best = 1.5 * share[torch.arange(K), score.argmax(-1)]
    y = (reward + 0.9 * lasting * models["target"](after, best).min(-1).values).detach()
    of_critic = (models["critic"](seen, action) - y[:, None]).square().sum(-1).mean()

    mean, log_std = policy.edits.moments(torch.cat([seen, action / 1.5], -1)).chunk(2, -1)
    density = Normal(mean, log_std.clamp(-5, 2).exp())
    u = mean + density.scale * facts[EDIT][:, 0]
    logprob = (density.log_prob(u) - torch.log(1 - u.tanh().square())).sum(-1)
    a = (action / 1.5 + 0.25 * u.tanh()).clamp(-1, 1)
    of_edits = (models["temperature"].log.detach().exp() * logprob - models["critic"](seen, 1.5 * a).mean(-1)).mean()
    of_temperature = -models["temperature"].log * (logprob.detach() - 1.0).mean()  # the goal is -2 / 2
    found = losses(learner, batch)
    assert list(found) == ["critic", "policy"] and found["policy"].of == ("policy", "temperature")
    same(found["critic"].value, of_critic, models["critic"])
    same(found["policy"].value, of_flow(learner, batch) + of_edits + of_temperature, policy)
    same(found["policy"].value, of_flow(learner, batch) + of_edits + of_temperature, models["temperature"])
    told = found["critic"].metrics
    assert told["proposals/edited"] == pytest.approx(float((score.argmax(-1) >= 4).float().mean()))
    assert told["proposals/gain"] == pytest.approx(float((score.max(-1).values - score.mean(-1)).mean()), rel=1e-4)


def test_the_gradient_of_an_edit_is_that_of_finite_differences():
    learner, batch = edited(), batch_of()
    weight = learner.policy.edits.moments[-1].bias
    (found,) = torch.autograd.grad(losses(learner, batch)["policy"].value, [weight])
    for place in range(len(weight)):
        values = []
        for step in (1e-2, -1e-2):
            with torch.no_grad():
                weight[place] += step
            values.append(float(losses(learner, batch)["policy"].value.detach()))
            with torch.no_grad():
                weight[place] -= step
        assert float(found[place]) == pytest.approx((values[0] - values[1]) / 2e-2, rel=2e-2, abs=2e-3)
    assert float(found.abs().max()) > 1e-2


def test_without_edits_the_best_of_the_flow_is_played_and_backed_up():
    learner, batch = edited(replace(EDITED, edit=0.0)), batch_of()
    share, _ = proposed(learner, batch)
    assert share.shape[1] == 4
    found = losses(learner, batch)
    same(found["policy"].value, of_flow(learner, batch), learner.policy)
    assert found["policy"].of == ("policy",) and found["critic"].metrics["proposals/edited"] == 0
    learner.step(learner.prepare(batch))


def test_with_one_proposal_and_no_edit_the_critic_is_the_flows():
    learner, batch = edited(replace(EDITED, edit=0.0, proposals=1)), batch_of()
    _, _, after, reward, lasting = parts(batch)
    noise = prepared(learner, batch).facts[NEXT][:, 0]
    a = 1.5 * learner.policy.flow.end(after, noise[:, :2], 3)
    y = reward + 0.9 * lasting * learner.models["target"](after, a).min(-1).values
    found = losses(learner, batch)["critic"].metrics
    assert found["q/target"] == pytest.approx(float(y.detach().mean()), rel=1e-5) and found["proposals/gain"] == 0


def test_gamma_0_fits_q_to_rewards():
    batch = batch_of()
    told = losses(edited(gamma=0.0), batch)["critic"].metrics["q/target"]
    assert told == pytest.approx(float(batch.reward_NS.mean()), rel=1e-5)


def test_no_value_reaches_the_flow_of_expo_either():
    moved = []
    for scale in (1.0, -30.0):
        learner, batch = edited(), batch_of()
        learner.step(learner.prepare(replace(batch, reward_NS=scale * batch.reward_NS)))
        moved.append([weight.detach().clone() for weight in learner.policy.flow.parameters()])
        edits = gradient(losses(learner, batch)["policy"].value, learner.policy.edits)
        assert any(bool(g.any()) for g in edits)
    assert all(map(torch.equal, *moved))


@pytest.mark.parametrize("make", [implicit, edited])
def test_the_step_is_the_same_however_it_is_cut_into_micro_batches(make):
    moved = []
    for tokens in (16384, 2):
        rates = replace(PLAIN, optimizer="sgd", microbatch_tokens=tokens)
        made = make()
        learner = Learner(made.policy, replace(made.update, optimization=rates), seed=0)
        learner.step(learner.prepare(batch_of()))
        moved.append([weight.detach().clone() for weight in learner.policy.parameters()])
    torch.testing.assert_close(*moved, atol=1e-6, rtol=1e-5)


# In a run.


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ("idql", {"update.critic.members": Text("3")}, r"policy\.members is 2 where update\.critic\.members is 3"),
        ("idql", {"policy.layer_norm": Text("false")}, r"policy\.layer_norm is False where .* is True"),
        ("idql", {"update.expectile": Text(".9")}, r"set policy\.pick\.expectile=0\.9"),
        ("idql", {"policy.edit": Text(".1")}, r"set policy\.edit=0"),
        ("idql", {"sampling.temperature": Text(".5")}, r"set sampling\.temperature=1"),
        ("expo", {"policy.pick": Text("ByExpectile()")}, r"policy\.pick='Best\(\)'"),
    ],
)
def test_what_does_not_go_together_is_refused_as_it_is_typed(recipe, changes, said):
    with pytest.raises(ValueError, match=said):
        recipes.load(recipe, changes)


def test_a_run_is_set_up_as_it_is_typed():
    run = recipes.load("idql", {"policy.pick": Text("Best()"), "policy.proposals": Text("8")})
    assert run.policy.proposals == 8 and not run.policy.pick.reads_value and check(run) == []
    run = recipes.load("idql", {"tasks": "gimbal/maze/stitch-v0"})
    assert run.policy.actions == run.update.critic.actions == 2 and run.policy.bound == run.update.critic.bound != 2.0
    assert check(run) == []
    run = recipes.load(
        "rlpd",
        {
            "policy": Text("BestOf(observations=3,actions=1,bound=2)"),
            "update": Text("EditedFlow(critic=ActionValues(observations=3,actions=1,bound=2))"),
        },
    )
    assert run.update.subset == 2 and check(run) == []


def small(recipe):
    own = recipes.load(recipe)
    store = replace(own.store, minibatch=16)
    store = replace(store, moves=4) if recipe == "idql" else replace(store, learning_starts=0)
    return replace(own, store=store, held_out=None, steps=3)


ACTING = {  # idql, which plays recorded episodes back, as it acts
    "tasks": Text('Gymnasium(environment="Pendulum-v1")'),
    "engine": Text("Episodes(slots=1, segment=10)"),
    "store": Text("Transitions()"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "changes"), [("expo", {}), ("idql", ACTING)])
def test_nothing_changes_before_the_first_move(recipe, changes, single_thread):
    run = recipes.load(recipe, changes)
    tasks = HeldOut(tasks=Gymnasium(environment="Pendulum-v1", seed=2, size=2), samples=1, engine=Episodes(slots=2))
    run = replace(run, held_out=tasks, steps=2, store=replace(run.store, learning_starts=10))
    trainer = Trainer(run)
    trainer.begin()
    assert scores_by(trainer.engine._policy, trainer.learner), "what is delivered as version 0"

    def found():
        return evaluate_held_out(run, trainer.learner.policy).metrics()

    before = found()
    metrics = [trainer.advance()[0]]
    assert metrics[0]["replay/moves"] == 0 and found() == before
    assert trainer.advance()[0]["replay/moves"] == 10 and found() != before
    trainer.close()


@pytest.mark.parametrize("recipe", ["idql", "expo"])
def test_a_resumed_run_goes_on_to_the_same_bits(recipe, tmp_path, single_thread):
    run = small(recipe)
    trainer = Trainer(run)
    trainer.begin()
    first, *_ = trainer.advance()
    assert "entropy/sampled" not in first, "it has no log-probability to tell of"
    resumed = Trainer(run, trainer.save(tmp_path, {}))
    for _ in range(2):
        assert deterministic(resumed.advance()[0]) == deterministic(trainer.advance()[0])
    for name, module in trainer.learner.models.modules.items():
        pairs = zip(module.parameters(), resumed.learner.models[name].parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs), name
    trainer.close(), resumed.close()
