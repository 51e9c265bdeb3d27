"""Worlds that refine their predictions: the steps and the losses by hand, and what is left without them."""

from dataclasses import replace

import pytest
import torch
from test_learned_worlds import INSIDE, WORLD, drawn, learner_of, ready

from gimbal.learning.learner import Learner
from gimbal.learning.updates.dyna import Dyna
from gimbal.learning.updates.model_learning import LEVEL, NOISE, ModelLearning, surprise
from gimbal.policies.dynamics import DynamicsNetwork
from gimbal.policies.planned import Planned
from gimbal.policies.planners import MPPI

REFINED = replace(WORLD, refine=(0.5, 0.1))


def read(world, member, seen, action, noisy, level):
    """One member's layers, written out."""
    beside = torch.nn.functional.one_hot(level, 2).float() if level is not None else torch.zeros(len(seen), 2)
    normal = (torch.cat([seen, action], -1) - world.inputs.mean_O) / (world.inputs.variance_O + 1e-8).sqrt()
    x = torch.cat([normal, noisy, beside], -1)
    x = torch.nn.functional.silu(x @ world.weights[0][member] + world.biases[0][member, 0])
    return x @ world.weights[1][member] + world.biases[1][member, 0]


def observing(spec):
    world, batch = spec.load(3), drawn(30, seed=4)
    steps = batch.decisions
    world.observe(steps.observation_NSO[:, 0], steps.action_NSA[:, 0], steps.final_NO, batch.reward_NS[:, 0])
    return world, steps.observation_NSO[:, 0], steps.action_NSA[:, 0]


def test_each_step_adds_noise_of_its_size_and_takes_away_what_the_network_names():
    world, seen, action = observing(REFINED)
    mean, log_std, _ = world(seen.expand(2, -1, -1), action)
    for member in range(2):
        first = read(world, member, seen, action, torch.zeros(30, 4), None)
        x = first[:, :4]
        for number, size in enumerate((0.5, 0.1)):
            noisy = x + size * world.noise_RMT[number, member]
            level = torch.full((30,), number)
            x = noisy - size * read(world, member, seen, action, noisy, level)[:, :4]
        torch.testing.assert_close(mean[member], world.targets.mean_O + world.spread_T * x)
        torch.testing.assert_close(log_std[member], -4 + 5 * first[:, 4:8].sigmoid())
    assert not torch.equal(world.noise_RMT[0, 0], world.noise_RMT[0, 1]), "each member has its own"
    torch.testing.assert_close(world.follow(seen, action[:, None]).mean_MNST[:, :, 0], mean)


def test_a_network_that_names_the_noise_ends_at_the_target(monkeypatch):
    world, seen, action = observing(REFINED)
    target = torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(5))

    def knows(self, seen_MKO, action_KA, noisy_MKT, level_K):
        return (noisy_MKT - target) / torch.tensor(self.spec.refine)[level_K][:, None]

    monkeypatch.setattr(DynamicsNetwork, "named_noise", knows)
    torch.testing.assert_close(world.outputs(seen.expand(2, -1, -1), action)[..., :4], target)


def test_without_steps_it_is_the_first_prediction_bit_for_bit():
    plain, seen, action = observing(WORLD)
    seen_MKO = seen.expand(2, -1, -1)
    assert torch.equal(plain.outputs(seen_MKO, action), plain.first(seen_MKO, action))
    assert torch.equal(plain.follow(seen, action[:, None]).mean_MNST, plain.unrefined(seen, action).mean_MNST)
    other = REFINED.load(3)
    assert other.weights[0].shape[1] == plain.weights[0].shape[1] + 4 + 2


@pytest.mark.parametrize("inside", [False, True])
def test_the_loss_is_the_likelihood_of_the_first_prediction_and_the_noise_that_one_step_names(inside):
    if inside:
        learner = learner_of(Dyna(inside=INSIDE, world=REFINED))
        world = learner.models["world"]
    else:
        policy = Planned(world=REFINED, planner=MPPI(candidates=2, horizon=2), bound=1.5)
        learner = learner_of(ModelLearning(), policy)
        world = learner.models.policy.world
    batch = ready(learner, drawn())
    noise, level = batch.facts[NOISE][:, 0], batch.facts[LEVEL][:, 0]
    assert noise.shape == (8, 2, 4) and set(level.tolist()) == {0, 1}
    loss, steps = next(learner.update.losses(learner.models, batch)), batch.decisions
    seen, action = steps.observation_NSO[:, 0], steps.action_NSA[:, 0]
    target = torch.cat([steps.final_NO - seen, batch.reward_NS], -1)
    normal = (target - world.targets.mean_O) / world.spread_T
    sizes = torch.tensor([0.5, 0.1])[level][:, None]
    expected, named = surprise(world, batch).mean(), torch.zeros(())
    for member in range(2):
        first = read(world, member, seen, action, torch.zeros(8, 4), None)
        own = torch.distributions.Normal(
            world.targets.mean_O + world.spread_T * first[:, :4],
            world.spread_T * (-4 + 5 * first[:, 4:8].sigmoid()).exp(),
        )
        expected = expected + own.log_prob(target).sum(-1).mean()  # surprise is of the first prediction: 0 is left
        error = read(world, member, seen, action, normal + sizes * noise[:, member], level)[:, :4] - noise[:, member]
        named = named + 0.5 * error.square().sum(-1).mean()
    torch.testing.assert_close(expected, torch.zeros(()), atol=1e-3, rtol=0)
    torch.testing.assert_close(loss.value, surprise(world, batch).mean() + named, rtol=1e-4, atol=1e-4)
    assert loss.metrics["world/refinement"] == pytest.approx(named.item(), rel=1e-4)


def test_noise_does_not_depend_on_how_a_batch_is_cut():
    policy = Planned(world=REFINED, planner=MPPI(candidates=2, horizon=2), bound=1.5)
    learner = Learner(policy.load(1), ModelLearning(), seed=0)
    learner.prepare(drawn(20, seed=5, move=-1))
    batch = ready(learner, drawn())
    whole = next(learner.update.losses(learner.models, batch)).value
    parts = [next(learner.update.losses(learner.models, batch.select(rows))).value for rows in torch.arange(8).split(3)]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize("refine", [(0.0,), (2.0,), (0.1, 0.1), (0.1, 0.2)])
def test_sizes_that_are_not_noise_are_refused(refine):
    with pytest.raises(ValueError, match="each smaller than the one before"):
        replace(WORLD, refine=refine)
