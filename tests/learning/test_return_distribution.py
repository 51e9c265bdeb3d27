"""STAC: one critic of a normal return, by torch's own distribution and by numbers; limits, dropout, and SAC's losses with it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_soft_actor_critic import PLAIN, POLICY, batch_of, distribution, doubled, transitions

from gimbal import recipes
from gimbal.critics.actions import ActionValues
from gimbal.critics.return_distribution import ReturnDistribution
from gimbal.dataflow.replay.preferences import Prioritized
from gimbal.learning.learner import Learner
from gimbal.learning.updates.soft_actor_critic import ACTS, KEPT, NEXT, Conservative, SoftActorCritic
from gimbal.runtime.compose import check

SPEC = ReturnDistribution(observations=3, actions=2, hidden=(8, 6), bound=1.5, pessimism=0.4, dropout=0.3)
SEEN, DONE = (torch.randn(7, n, generator=torch.Generator().manual_seed(n)).double() for n in (3, 2))


def by_hand(net, seen_KO, action_KA, kept_KD=None):
    """Mean and deviation, layer by layer, with variances taken by hand."""
    x, at = torch.cat([seen_KO, action_KA / net.bound], -1), 0
    for number in range(len(net.gains)):
        x = x @ net.weights[number][0] + net.biases[number][0]
        if kept_KD is not None:
            x = x * kept_KD[:, at : at + x.shape[1]]
        at += x.shape[1]
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        x = (x * net.gains[number] + net.shifts[number]).clamp(min=0)
    mean, raw = (x @ net.weights[-1][0] + net.biases[-1][0]).unbind(-1)
    return mean, torch.log1p(raw.clamp(min=-5).exp())


def test_the_network_is_its_layers_and_a_kept_unit_counts_for_those_that_are_not():
    net = SPEC.load(2).double()
    kept_KD = SPEC.kept(np.random.default_rng(0), 7).double()
    assert sorted(kept_KD.unique().tolist()) == pytest.approx([0, 1 / 0.7]) and kept_KD.shape == (7, 14)
    for kept in ((), (kept_KD,)):
        mean_K, deviation_K = by_hand(net, SEEN, DONE, *kept)
        torch.testing.assert_close(net(SEEN, DONE, *kept), torch.stack([mean_K, deviation_K], -1))
    assert torch.equal(net(SEEN, DONE), net(SEEN, DONE, torch.ones(7, 14).double()))
    many = SPEC.kept(np.random.default_rng(1), 20_000)
    assert float(many.mean()) == pytest.approx(1, abs=0.01)


def test_the_deviation_has_a_floor():
    net = SPEC.load(0)
    with torch.no_grad():
        net.biases[-1][0, 0, 1] = -1e4
    assert net(SEEN.float(), DONE.float())[:, 1].tolist() == pytest.approx([math.log1p(math.exp(-5))] * 7)


def test_the_loss_is_the_normals_and_its_gradient_that_of_differences():
    q_K2 = torch.tensor([[0.5, 2.0], [-1.0, 0.1], [3.0, 1.0]], dtype=torch.float64, requires_grad=True)
    target_K = torch.tensor([1.5, -1.2, 3.0], dtype=torch.float64)
    wanted_K = -torch.distributions.Normal(q_K2[:, 0], q_K2[:, 1]).log_prob(target_K)
    torch.testing.assert_close(SPEC.loss(q_K2, target_K), wanted_K)
    assert torch.autograd.gradcheck(lambda q: SPEC.loss(q, target_K), (q_K2,))
    assert SPEC.worth(q_K2).tolist() == pytest.approx([0.5 - 0.8, -1.04, 2.6])


def test_reduces_to_half_the_squared_error_at_a_deviation_of_1_and_to_the_mean_without_pessimism():
    mean_K, target_K = torch.tensor([0.0, 2.0]), torch.tensor([3.0, 1.5])
    q_K2 = torch.stack([mean_K, torch.ones(2)], -1)
    one = ActionValues(observations=3, actions=2, members=1).loss(mean_K[:, None], target_K)
    torch.testing.assert_close(SPEC.loss(q_K2, target_K), one / 2 + math.log(2 * math.pi) / 2)
    assert torch.equal(replace(SPEC, pessimism=0.0).worth(q_K2), mean_K)


def test_what_it_learns_of_a_noisy_reward_is_its_noise():
    """Rewards of 1 with a deviation of 2 for one action, of -1 with .1 for the other; nothing follows."""
    spec = ReturnDistribution(observations=1, actions=1, hidden=(16,), dropout=0.0)
    net, g = spec.load(0), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(600):
        action_K = torch.randint(0, 2, (256,), generator=g) * 2.0 - 1
        reward_K = action_K + torch.randn(256, generator=g) * torch.where(action_K > 0, 2.0, 0.1)
        loss = spec.loss(net(torch.zeros(256, 1), action_K[:, None]), reward_K).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = net(torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]])).detach()
    assert found[0].tolist() == pytest.approx([1, 2], abs=0.2) and found[1].tolist() == pytest.approx(
        [-1, 0.1], abs=0.05
    )
    worth = replace(spec, pessimism=1.2).worth(found)
    assert worth[0] < worth[1], "the action that pays more is worth less to who minds its noise"


def test_sacs_losses_and_gradients_with_it():
    update = SoftActorCritic(critic=SPEC, gamma=0.9, alpha=0.3, tune=False, optimization=PLAIN)
    learner = Learner(POLICY.load(1).double(), update, critic=SPEC.load(2).double(), seed=0)
    batch = learner.update.survey(learner.models, learner.prepare(doubled(batch_of())))[0]
    seen, action, reward, after, ended = transitions(batch)
    policy, models, mask_NS = learner.policy, learner.models, batch.mask_NS
    kept = {name: batch.facts[fact][mask_NS].double() for name, fact in KEPT.items()}

    def drawn(at, noise):
        base, squashed = distribution(policy, at)
        a = policy.bound * (base.loc + base.scale * noise).tanh()
        return a, squashed.log_prob(a).sum(-1) + 2 * math.log(policy.bound)

    with torch.no_grad():
        a2, logp2 = drawn(after, batch.facts[NEXT][mask_NS])
        mean, deviation = by_hand(models["target"], after, a2, kept[NEXT])
        y = reward + 0.9 * (1 - ended) * (mean - 0.4 * deviation - 0.3 * logp2)
    mean, deviation = by_hand(models["critic"], seen, action, kept["data"])
    wanted = {"critic": (((y - mean) / deviation) ** 2 / 2 + deviation.log() + 0.5 * math.log(2 * math.pi)).mean()}
    a1, logp1 = drawn(seen, batch.facts[ACTS][mask_NS])
    mean, deviation = by_hand(models["critic"], seen, a1, kept[ACTS])
    wanted["policy"] = (0.3 * logp1 - mean + 0.4 * deviation).mean()
    losses = list(learner.update.losses(models, batch))
    assert [loss.of for loss in losses] == [("critic",), ("policy",)]
    for loss in losses:
        (name,) = loss.of
        weights = list(models[name].parameters())
        assert float(loss.value.detach()) == pytest.approx(float(wanted[name].detach()), rel=1e-4)
        ours, theirs = (torch.autograd.grad(x, weights, retain_graph=True) for x in (loss.value, wanted[name]))
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    assert losses[0].metrics["q/deviation"] > 0


def test_settings_that_it_does_not_go_with_are_refused():
    with pytest.raises(ValueError, match=r"pessimism -0\.1 \(0 or above\)"):
        replace(SPEC, pessimism=-0.1)
    with pytest.raises(ValueError, match=r"dropout 1\.0 \(from 0 to below 1\)"):
        replace(SPEC, dropout=1.0)
    for other in ({"subset": 1}, {"conservative": Conservative()}):
        with pytest.raises(ValueError, match="ReturnDistribution is one network: leave both out"):
            SoftActorCritic(critic=SPEC, **other)
    run = recipes.function("stac")()
    with pytest.raises(ValueError, match="Prioritized draws by errors, and SoftActorCritic tells none"):
        check(replace(run, store=replace(run.store, preference=Prioritized())))
