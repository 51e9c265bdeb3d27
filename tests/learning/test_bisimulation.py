"""History bisimulation against sums taken here: whom each loss moves, its limiting cases, and what it is for."""

from dataclasses import replace

import pytest
import torch
from test_offline_control import CRITIC, PLAIN, SIZES, K, batch_of, gradient, learner, losses, parts, prepared
from torch.distributions import Normal

from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.bisimulation import PAIR, HistoryBisimulation, LatentModel
from gimbal.learning.updates.implicit_q import ImplicitQ
from gimbal.policies.encoded import Encoded
from gimbal.policies.gaussian import Gaussian

CODED = Encoded(**SIZES, bound=1.5, code=4, encoder=(6,))
INSIDE = ImplicitQ(critic=CRITIC, gamma=0.9, beta=2.0, optimization=PLAIN)


def made_of(batch=None, **settings):
    update = HistoryBisimulation(inside=INSIDE, code=4, hidden=(5,), **settings)
    made = Learner(CODED.load(1), update, seed=0)
    with torch.no_grad():
        for weight in made.models["target"].parameters():
            weight.add_(0.1)
        for weight in made.models["latent"].parameters():
            weight.mul_(2)
    return made


def distances(made, seen, other, action):
    """|z - z2| and D, written out."""
    net, phi = made.models["latent"].net, made.policy.phi
    one, two = phi(seen), phi(other)
    said = []
    for code in (one, two):
        out = net(torch.cat([code, action / 1.5], -1))
        said.append((code + out[:, :4], out[:, 4:8].clamp(-4, 1).exp(), out[:, 8]))
    (mean, std, reward), (mean2, std2, reward2) = said
    wasserstein = ((mean - mean2).pow(2).sum(-1) + (std - std2).pow(2).sum(-1)).sqrt()
    return (one - two).norm(dim=-1), ((reward - reward2).abs() + 0.9 * wasserstein).detach()


def test_each_loss_is_its_equation_and_moves_whom_it_should():
    made, batch = made_of(weight=0.3), batch_of()
    seen, action, after, reward, lasting = parts(batch)
    policy, models = made.policy, made.models
    code = policy.phi(seen)
    found = losses(made, batch)
    assert list(found) == ["value", "policy", "latent", "critic"] and found["critic"].of == ("critic", "policy")

    with torch.no_grad():
        above = models["target"](code, action).min(-1).values - models["value"](code)[:, 0]
        target = reward + 0.9 * lasting * models["value"](policy.phi(after))[:, 0]
    density = Normal(policy.acts.mean(code.detach()), policy.acts.log_std_A.exp()).log_prob(action).sum(-1)
    imitation = -((2 * above).exp().clamp(max=100) * density).mean()
    torch.testing.assert_close(gradient(found["policy"].value, policy.acts), gradient(imitation, policy.acts))
    blind = torch.autograd.grad(
        found["policy"].value, list(policy.phi.parameters()), allow_unused=True, retain_graph=True
    )
    assert blind == (None,) * len(blind), "imitation teaches the encoder nothing"

    apart, wanted = distances(made, seen, seen.roll(1, 0), action)
    expected = (models["critic"](code, action) - target[:, None]).pow(2).sum(-1).mean()
    expected = expected + 0.3 * (apart - wanted).pow(2).mean()
    for module in (models["critic"], policy.phi):
        torch.testing.assert_close(gradient(found["critic"].value, module), gradient(expected, module))
    kept = torch.autograd.grad(
        found["critic"].value, list(models["latent"].parameters()), allow_unused=True, retain_graph=True
    )
    assert kept == (None,) * len(kept), "the model of codes learns from what came, not from distances"

    out = models["latent"].net(torch.cat([code.detach(), action / 1.5], -1))
    std = out[:, 4:8].clamp(-4, 1).exp()
    log_density = Normal(code.detach() + out[:, :4], std).log_prob(policy.phi(after).detach())
    nll = (-log_density - 0.5 * torch.log(torch.tensor(2 * torch.pi))).mean(-1) + (out[:, 8] - reward).pow(2)
    latent = models["latent"]
    torch.testing.assert_close(gradient(found["latent"].value, latent), gradient(nll.mean(), latent))


def test_its_gradient_is_that_of_finite_differences():
    made = made_of(weight=0.3)
    batch = prepared(made, batch_of())
    made.models.modules["latent"].double()
    made.policy.double()
    seen, other = (x[:, 0].double() for x in (batch.decisions.observation_NSO, batch.facts[PAIR]))
    action = batch.decisions.action_NSA[:, 0].double()
    fixed = distances(made, seen, other, action)[1]
    weight = made.policy.phi[0].weight

    def loss():
        return (((made.policy.phi(seen) - made.policy.phi(other)).square().sum(-1)).sqrt() - fixed).square().mean()

    (slope,) = torch.autograd.grad(loss(), [weight])
    with torch.no_grad():
        for i, j in ((0, 0), (2, 1), (5, 2)):
            weight[i, j] += 1e-6
            up = loss()
            weight[i, j] -= 2e-6
            down = loss()
            weight[i, j] += 1e-6
            assert float(slope[i, j]) == pytest.approx(float((up - down) / 2e-6), rel=1e-4, abs=1e-7)


def test_a_weight_of_0_is_iql_on_a_code():
    """``inside`` on a code that the critic alone teaches: its losses where the code is the observation."""
    made, batch = made_of(weight=0.0), batch_of()
    found = losses(made, batch)
    assert list(found) == ["value", "policy", "critic"] and "bisimulation/loss" not in found["critic"].metrics
    coded = replace(
        batch,
        decisions=replace(
            batch.decisions,
            observation_NSO=made.policy.phi(batch.decisions.observation_NSO).detach(),
            final_NO=made.policy.phi(batch.decisions.final_NO).detach(),
        ),
    )
    inside = replace(INSIDE, critic=replace(CRITIC, observations=4))
    other = learner(inside, Gaussian(**{**SIZES, "observations": 4}))
    other.policy.load_state_dict(made.policy.acts.state_dict())
    for name in ("value", "critic", "target"):
        other.models[name].load_state_dict(made.models[name].state_dict())
    for name, loss in losses(other, coded).items():
        torch.testing.assert_close(found[name].value, loss.value)


def test_the_same_observation_in_every_row_teaches_no_distance():
    made, batch = made_of(weight=0.3), batch_of()
    alike = batch.decisions.observation_NSO[:1].expand(K, 1, 3).clone()
    batch = replace(batch, decisions=replace(batch.decisions, observation_NSO=alike))
    told = losses(made, batch)["critic"].metrics
    assert told["bisimulation/wanted"] == 0 and told["bisimulation/distance"] == pytest.approx(0, abs=1e-3)
    plain = losses(made_of(weight=0.0), batch)["critic"].value
    torch.testing.assert_close(losses(made, batch)["critic"].value, plain)


def test_pairs_do_not_depend_on_micro_batches():
    batch = batch_of()
    made = made_of(weight=0.3)
    whole = prepared(made, batch)
    halves = [whole.select(torch.arange(K)[part]) for part in (slice(0, 3), slice(3, K))]
    sums = [sum(loss.value for loss in made.update.losses(made.models, one)) for one in (whole, *halves)]
    torch.testing.assert_close(sums[0], sums[1] + sums[2])


def test_what_it_plays_is_what_it_assesses_and_comes_back(tmp_path):
    policy = replace(CODED, normalize=True).load(3)
    seen, noise = torch.randn(9, 3), torch.randn(9, 2)
    policy.normalizer.observe(5 * seen + 1)
    action, logprob = policy.draw(seen, noise, torch.ones(9))
    torch.testing.assert_close(policy.assess(seen, action, 1.0)[0], logprob)
    policy.save(tmp_path)
    again = Encoded(**SIZES, model=str(tmp_path)).load(5)
    assert torch.equal(again.draw(seen, noise, torch.ones(9))[0], action) and policy.normal(seen).shape == (9, 4)


def test_distances_become_those_of_what_follows():
    """Three numbers are observed, of which the reward is the first and the others are noise: codes come to tell the first alone."""
    g = torch.Generator().manual_seed(1)
    count, batch = 256, batch_of()
    seen = torch.randn(count, 3, generator=g)
    steps = replace(
        batch.decisions,
        observation_NSO=seen[:, None],
        action_NSA=torch.randn(count, 1, 2, generator=g).tanh(),
        final_NO=torch.randn(count, 3, generator=g),
        length_N=torch.ones(count, dtype=torch.long),
        terminated_N=torch.ones(count, dtype=torch.bool),
    )
    facts = {name: x[:1].expand(count).clone() for name, x in batch.facts.items()}
    mask = torch.ones(count, 1, dtype=torch.bool)
    batch = replace(batch, decisions=steps, reward_NS=2 * seen[:, :1], mask_NS=mask, facts=facts)

    def noise_share(weight):
        """How far a code moves with the noise, beside how far it moves with what counts."""
        rates = Optimization(learning_rate=3e-3, critic_learning_rate=3e-3, beta2=0.999)
        update = HistoryBisimulation(inside=replace(INSIDE, gamma=0.0, optimization=rates), code=4, weight=weight)
        made = Learner(CODED.load(1), update, seed=0)
        for _ in range(150):
            made.step(batch)
        with torch.no_grad():
            code = made.policy.normal
            moved = [float((code(seen + step) - code(seen)).norm(dim=-1).mean()) for step in 0.5 * torch.eye(3)]
        return max(moved[1:]) / moved[0]

    assert noise_share(1.0) < 0.7 * noise_share(0.0)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"code 0, which counts the numbers of a code from 1, and weight 0\.1"):
        HistoryBisimulation(inside=INSIDE, code=0)
    with pytest.raises(ValueError, match="weight -1"):
        HistoryBisimulation(inside=INSIDE, weight=-1.0)
    with pytest.raises(ValueError, match="layers of 3, 8, 0 numbers"):
        replace(CODED, code=0, encoder=(8,)).load()
    assert LatentModel(4, 2, (5,), 1.5, 0)(torch.zeros(3, 4), torch.zeros(3, 2))[0].shape == (3, 4)
