"""SAC: losses and gradients against a reference written here, limiting cases, and that a short run learns."""

import math
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

from gimbal import recipes
from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import IMPORTANCE, MOVE, each
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.soft_actor_critic import ACTS, NEXT, SoftActorCritic
from gimbal.policies.control import Steps
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import TrainBatch
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer

POLICY = SquashedGaussian(observations=3, actions=2, hidden=(8,), bound=1.5)
CRITIC = ActionValues(observations=3, actions=2, hidden=(8,), bound=1.5)
PLAIN = Optimization(learning_rate=0.1, critic_learning_rate=0.1, beta1=0.0, beta2=0.0, max_grad_norm=math.inf)


def batch_of(n=5, s=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    length_N = torch.tensor([3, 1, 2, 3, 2])[:n]
    real_NS = torch.arange(s) < length_N[:, None]
    steps = Steps(
        observation_NSO=torch.randn(n, s, 3, generator=g),
        action_NSA=1.4 * torch.tanh(torch.randn(n, s, 2, generator=g)),
        final_NO=torch.randn(n, 3, generator=g),
        length_N=length_N,
        terminated_N=torch.tensor([True, False, True, False, False])[:n],
    )
    return TrainBatch(mask_NS=real_NS, reward_NS=torch.randn(n, s, generator=g), decisions=steps)


def learner_of(**changes):
    update = SoftActorCritic(critic=CRITIC, optimization=PLAIN, **changes)
    return Learner(POLICY.load(1).double(), update, critic=CRITIC.load(2).double(), seed=0)


def doubled(batch):
    steps = batch.decisions
    own = {"observation_NSO": steps.observation_NSO, "action_NSA": steps.action_NSA, "final_NO": steps.final_NO}
    wide = replace(steps, **{name: x.double() for name, x in own.items()})
    return replace(batch, reward_NS=batch.reward_NS.double(), decisions=wide)


def distribution(policy, seen_KO):
    """The policy as torch's own transformed distribution."""
    mean, log_std = policy.moments(seen_KO).chunk(2, -1)
    base = Normal(mean.float(), log_std.float().clamp(-5, 2).exp())
    return base, TransformedDistribution(base, [TanhTransform(), AffineTransform(0.0, policy.bound)])


def transitions(batch):
    """(o, a, r, o', ended) of each step, one by one."""
    s, found = batch.decisions, []
    for n in range(batch.shape[0]):
        for t in range(int(s.length_N[n])):
            last = t == int(s.length_N[n]) - 1
            after = s.final_NO[n] if last else s.observation_NSO[n, t + 1]
            ended = last and bool(s.terminated_N[n])
            found.append((s.observation_NSO[n, t], s.action_NSA[n, t], batch.reward_NS[n, t], after, float(ended)))
    return [torch.stack([torch.as_tensor(x) for x in column]) for column in zip(*found, strict=True)]


def q_of(critic, seen_KO, action_KA):
    """Both networks, layer by layer."""
    found = []
    for m in range(2):
        x = torch.cat([seen_KO, action_KA / critic.bound], -1)
        for number, (weight, bias) in enumerate(zip(critic.weights, critic.biases, strict=True)):
            x = x @ weight[m] + bias[m, 0]
            x = x if number == len(critic.weights) - 1 else x.relu()
        found.append(x[:, 0])
    return torch.stack(found, -1)


def test_losses_and_gradients_are_those_of_the_equations():
    """Each loss is asked for before anything moves; the reference is torch's distributions and plain means over transitions."""
    learner = learner_of(gamma=0.9, alpha=0.3)
    batch = learner.prepare(doubled(batch_of()))
    batch, _ = learner.update.survey(learner.models, batch)
    policy, critic, mask_NS = learner.policy, learner.models["critic"], batch.mask_NS
    seen, action, reward, after, ended = transitions(batch)
    alpha = 0.3

    def drawn(at, noise):
        base, squashed = distribution(policy, at)
        a = policy.bound * (base.loc + base.scale * noise).tanh()
        return a, squashed.log_prob(a).sum(-1) + 2 * math.log(policy.bound)

    with torch.no_grad():
        a2, logp2 = drawn(after, batch.facts[NEXT][mask_NS])
        worth = q_of(learner.models["target"], after, a2).min(-1).values - alpha * logp2
        y = reward + 0.9 * (1 - ended) * worth
    expected = {"critic": (q_of(critic, seen, action) - y[:, None]).square().sum(-1).mean()}
    a1, logp1 = drawn(seen, batch.facts[ACTS][mask_NS])
    expected["policy"] = (alpha * logp1 - q_of(critic, seen, a1).min(-1).values).mean()
    log_alpha = learner.models["temperature"].log
    expected["temperature"] = -log_alpha * (logp1.detach() - 2).mean()
    # One loss has both: neither term has a gradient of the other's weights.
    both = expected["policy"] + expected["temperature"]
    losses = list(learner.update.losses(learner.models, batch))
    assert [loss.of for loss in losses] == [("critic",), ("policy", "temperature")]
    assert float(losses[1].value.detach()) == pytest.approx(float(both.detach()), rel=1e-4)
    assert float(losses[0].value.detach()) == pytest.approx(float(expected["critic"].detach()), rel=1e-4)
    for loss, name in ((own, name) for own in losses for name in own.of):
        weights = list(learner.models[name].parameters())
        ours = torch.autograd.grad(loss.value, weights, retain_graph=True)
        theirs = torch.autograd.grad(expected[name], weights, retain_graph=True)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_decisions_one_by_one_lose_what_they_lose_in_rows():
    learner = learner_of()
    batch = learner.update.survey(learner.models, learner.prepare(doubled(batch_of())))[0]
    single, _ = each(batch)
    assert single.shape == (11, 1) and batch.shape == (5, 3)
    for one, other in zip(*(learner.update.losses(learner.models, rows) for rows in (single, batch)), strict=True):
        assert one.of == other.of and one.metrics == pytest.approx(other.metrics, rel=1e-5)
        assert float(one.value.detach()) == pytest.approx(float(other.value.detach()), rel=1e-5)


def test_the_logprob_of_a_recorded_action_is_that_of_the_draw():
    policy = SquashedGaussian(observations=3, actions=2, bound=2.0).load(0)
    seen = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    action, recorded = policy.draw(seen, noise, torch.ones(50))
    sampled, exact = policy.sample(seen, noise)
    assert torch.equal(action, sampled) and (action.abs() < 2).all()
    assert torch.equal(policy.assess(seen, action, 1.0)[0], recorded), "the trainer's evaluation is the sampler's"
    torch.testing.assert_close(recorded, exact, atol=1e-3, rtol=0)
    torch.testing.assert_close(recorded, distribution(policy, seen)[1].log_prob(action).sum(-1), atol=1e-3, rtol=0)
    mode, nothing = policy.draw(seen, noise, torch.zeros(50))
    assert torch.equal(mode, 2 * policy.moments(seen)[:, :2].tanh()) and (nothing == 0).all()
    edge = torch.full((1, 2), 2.0)
    assert policy.assess(seen[:1], edge, 1.0)[0].isfinite().all(), "float32 may round an action to its bound"


def test_the_density_integrates_to_one():
    policy = SquashedGaussian(observations=1, actions=1, bound=2.0).load(0)
    grid = torch.linspace(-2, 2, 40001)[1:-1, None]
    logprob = policy.assess(torch.zeros(len(grid), 1), grid, 1.0)[0].detach()
    assert float(logprob.double().exp().sum() * (4 / 40000)) == pytest.approx(1, abs=2e-3)


def moved(update_changes, batch=None, steps=1):
    learner = learner_of(**update_changes)
    for _ in range(steps):
        metrics = learner.step(learner.prepare(doubled(batch_of()) if batch is None else batch))
    return learner, metrics


def test_tau_1_is_a_target_that_is_the_critic_and_tau_0_one_that_stays():
    learner, _ = moved({"tau": 1.0})
    pairs = zip(learner.models["target"].parameters(), learner.models["critic"].parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    learner, _ = moved({"tau": 0.0})
    pairs = zip(learner.models["target"].parameters(), CRITIC.load(2).double().parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_gamma_0_fits_rewards():
    batch = doubled(batch_of())
    _, metrics = moved({"gamma": 0.0}, batch)
    assert metrics["q/target"] == pytest.approx(float(batch.reward_NS[batch.mask_NS].mean()), rel=1e-5)


def test_the_temperature_falls_where_there_is_more_entropy_than_is_held_and_stays_where_it_is_held():
    learner, metrics = moved({"entropy": -10.0})
    assert metrics["entropy/policy"] > -10 and float(learner.models["temperature"].log.detach()) < 0
    learner, _ = moved({"entropy": 10.0})
    assert float(learner.models["temperature"].log.detach()) > 0
    learner, metrics = moved({"tune": False, "alpha": 0.2})
    assert (
        float(learner.models["temperature"].log.detach()) == pytest.approx(math.log(0.2))
        and "temperature" not in metrics
    )
    assert "temperature" not in learner.models.optimizers


def test_an_end_cuts_the_future_off_and_a_limit_does_not():
    batch = doubled(batch_of())
    ends = []
    for ended in (True, False):
        steps = replace(batch.decisions, terminated_N=torch.full((5,), ended))
        ends.append(moved({"gamma": 0.5}, replace(batch, decisions=steps))[1]["q/target"])
    assert ends[0] != ends[1]


def test_another_policy_is_refused_before_anything_is_drawn():
    with pytest.raises(ValueError, match="Gaussian has no such samples: set policy='SquashedGaussian"):
        recipes.load("sac", {"policy": Gaussian(observations=3, actions=1)})
    with pytest.raises(ValueError, match="SquashedGaussian"):
        Learner(Gaussian(observations=3, actions=2).load(), SoftActorCritic(critic=CRITIC))


@pytest.mark.parametrize("wrong", [{"gamma": 1.5}, {"tau": -0.1}, {"alpha": 0.0}, {"temperature_learning_rate": -1.0}])
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="SoftActorCritic"):
        SoftActorCritic(critic=CRITIC, **wrong)


class Near(gymnasium.Env):
    """x moves by the action; the reward is -x^2. Whoever goes straight to 0 earns -0.17 in ten steps on average."""

    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = float(self.np_random.uniform(-2, 2)), 0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x, self.steps = self.x + float(action[0]), self.steps + 1
        return np.array([self.x], np.float32), -(self.x**2), False, self.steps == 10, {}


@pytest.fixture
def near():
    """The recipe in another environment: ten episodes a step, and fifty moves."""
    gymnasium.register("Near-v0", Near)
    yield recipes.load(
        "sac",
        {
            "held_out": None,
            "tasks.environment": "Near-v0",
            "sampling.max_length": 10,
            "prompts_per_step": 10,
            "engine.slots": 10,
            "engine.segment": 0,
            "store.update_to_data": 0.5,
            "store.minibatch": 64,
            "store.learning_starts": 0,
            "gamma": 0.9,
            "learning_rate": 5e-3,
            "critic_learning_rate": 5e-3,
            "alpha": 0.1,
            "tau": 0.05,
            "policy.hidden": (32,),
            "update.critic.hidden": (32, 32),
        },
    )
    del gymnasium.registry["Near-v0"]


@pytest.mark.slow
def test_a_short_run_from_a_buffer_learns_and_a_resumed_one_goes_on_to_the_same_bits(near, tmp_path, single_thread):
    assert (near.policy.observations, near.policy.bound, near.update.critic.bound) == (1, 1.0, 1.0), (
        "fitted to the environment"
    )
    trainer = Trainer(near)
    earned = [trainer.advance()[0]["reward/mean"] for _ in range(2)]
    saved = trainer.save(tmp_path, {})
    resumed = Trainer(near, saved)
    for _ in range(3):
        metrics = trainer.advance()[0]
        assert deterministic(resumed.advance()[0]) == deterministic(metrics)
        earned.append(metrics["reward/mean"])
    assert metrics["staleness/max"] == 4 and metrics["replay/lag_max"] == 0, (
        "what is replayed is old, and what acts is not"
    )
    assert trainer.store.held == 500 and metrics["replay/moves"] == 250
    for name in ("policy", "critic", "target", "temperature"):
        pairs = zip(trainer.learner.models[name].parameters(), resumed.learner.models[name].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    trainer.close()
    resumed.close()
    assert earned[0] < -9 and np.mean(earned[-3:]) > -3


def losses_of(critic, rows=None, **changes):
    """The first step's, and its subset's networks."""
    update = SoftActorCritic(critic=critic, optimization=PLAIN, **changes)
    learner = Learner(POLICY.load(1).double(), update, critic=critic.load(2).double(), seed=0)
    batch = learner.update.survey(learner.models, learner.prepare(doubled(batch_of() if rows is None else rows)))[0]
    return learner, batch, list(learner.update.losses(learner.models, batch))


def test_a_subset_of_all_networks_has_the_critic_loss_of_none_and_the_policy_climbs_the_mean():
    """Limiting case of ``subset``; the policy's loss is written out here."""
    _, _, whole = losses_of(CRITIC)
    learner, batch, own = losses_of(CRITIC, subset=2)
    assert float(own[0].value.detach()) == pytest.approx(float(whole[0].value.detach()), rel=1e-12)
    seen = transitions(batch)[0]
    action, logprob = learner.policy.sample(seen, batch.facts[ACTS][batch.mask_NS])
    worth = q_of(learner.models["critic"], seen, action)
    logprob = logprob + 2 * math.log(learner.policy.bound)
    for least, loss in ((False, own[1]), (True, whole[1])):
        q = worth.min(-1).values if least else worth.mean(-1)
        expected = (logprob - q).mean()  # alpha is 1
        assert loss.metrics["loss"] == pytest.approx(float(expected.detach()), rel=1e-4)


def test_a_target_takes_the_least_of_its_subset_drawn_anew_for_each_move():
    """With gamma 1 and members that are constants, the target minus the reward says which members were drawn."""
    critic = replace(CRITIC, members=5)
    targets = {}
    for move in range(12):
        rows = batch_of().with_columns({MOVE: torch.full((5,), move)})
        learner, batch, _ = losses_of(critic, rows, subset=2, gamma=1.0)
        target = learner.models["target"]
        with torch.no_grad():
            for weight in target.weights:
                weight.zero_()
            target.biases[-1][:, 0, 0] = torch.arange(5.0) * 10
            models = learner.models
            next_KO = batch.decisions.next_NSO[batch.mask_NS]
            logprob = models.policy.sample(next_KO, batch.facts[NEXT][batch.mask_NS])[1]
            reward, discount = learner.update.backed(batch)
            y = learner.update._target(models, batch)
            lasting = discount > 0
            own = (y - reward + logprob + 2 * math.log(1.5))[lasting]
        assert own.max() - own.min() < 1e-4, "one subset for all rows of a move"
        targets[move] = round(float(own[0]))
    assert set(targets.values()) <= {0, 10, 20, 30}, "the greatest of five is never the least of two"
    assert len(set(targets.values())) > 1
    # The least of two of five is 0 in 4 of 10 draws, 10 in 3, 20 in 2, 30 in 1.


def test_layer_norm_is_that_of_torch_in_each_network():
    critic = replace(CRITIC, hidden=(8, 6), members=3, layer_norm=True).load(0).double()
    with torch.no_grad():
        for number, weight in enumerate([*critic.gains, *critic.shifts]):
            weight += torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
    seen, action = torch.randn(7, 3).double(), torch.randn(7, 2).double()
    found = critic(seen, action)
    for m in range(3):
        x = torch.cat([seen, action / 1.5], -1)
        for layer in range(2):
            x = x @ critic.weights[layer][m] + critic.biases[layer][m, 0]
            gain, shift = critic.gains[layer][m, 0], critic.shifts[layer][m, 0]
            x = torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift).relu()
        torch.testing.assert_close(found[:, m], (x @ critic.weights[2][m] + critic.biases[2][m, 0])[:, 0])
    plain, same = replace(CRITIC, layer_norm=False).load(3), replace(CRITIC, layer_norm=True).load(3)
    assert all(torch.equal(a, b) for a, b in zip(plain.weights, same.weights, strict=True)), "the same first weights"


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_subset_of_more_networks_than_there_are_is_refused(wrong):
    with pytest.raises(ValueError, match="how many of the 2 networks"):
        SoftActorCritic(critic=CRITIC, subset=wrong)


@pytest.mark.parametrize("recipe", ["sac", "td3", "dqn"])
def test_errors_are_of_the_loss_and_weights_of_rows_act_on_the_critic_alone(recipe):
    """In each update the mean of (y - Q)^2 that its metrics give is that of the errors it tells, of one network or choice."""
    run = recipes.load(recipe, {"held_out": None})
    update = run.update if recipe == "dqn" else replace(run.update, critic=replace(run.update.critic, members=1))
    rows = recipes.load("sac" if recipe == "td3" else recipe, {"store.minibatch": 16, "store.learning_starts": 0})
    trainer = Trainer(replace(run, store=rows.store, update=update, steps=2))
    trainer.begin()
    _, _, fresh = trainer.advance()
    learner, store = trainer.learner, trainer.store
    batch = learner.prepare(store.take(fresh))
    batch = batch.select(torch.arange(16))
    batch = batch.with_columns({MOVE: torch.zeros(16, dtype=torch.long), "weight": torch.full((16, 1), 1 / 16)})
    error_N = learner.errors(batch)
    assert error_N.shape == (16,) and float(error_N.min()) >= 0 and float(error_N.std()) > 0
    name = "loss" if recipe == "dqn" else "q/loss"
    half = 0.5 if recipe == "dqn" else 1.0

    def first(batch):
        return next(learner.update.losses(learner.models, batch))

    assert first(batch).metrics[name] == pytest.approx(half * float(error_N.square().mean()), rel=1e-5)
    weight_N = torch.rand(16)
    weighed = first(batch.with_columns({IMPORTANCE: weight_N[:, None]}))
    assert float(weighed.value.detach()) == pytest.approx(half * float((weight_N * error_N.square()).mean()), rel=1e-5)
    assert weighed.metrics == first(batch).metrics, "figures are of all rows alike"
    if recipe == "sac":
        losses = [
            [float(loss.value.detach()) for loss in learner.update.losses(learner.models, x)]
            for x in (batch, batch.with_columns({IMPORTANCE: weight_N[:, None]}))
        ]
        assert losses[0][0] != losses[1][0] and losses[0][1] == losses[1][1]
    trainer.close()


@pytest.mark.parametrize("recipe", ["sac", "dsrl", "expo", "famo2o"])
def test_weight_decay_pulls_no_temperature_towards_1(recipe):
    run = recipes.load(recipe, {"weight_decay": 0.1})
    models = run.update.models()
    assert models["policy"].optimizer.weight_decay == 0.1 and models["temperature"].optimizer.weight_decay == 0
