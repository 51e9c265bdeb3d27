"""The best choice by the least value of several networks."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gimbal import recipes
from gimbal.environments.gym import Gymnasium
from gimbal.policies.greedy import Greedy
from gimbal.policies.least import LeastValues
from gimbal.runtime.evaluate import evaluate_held_out
from gimbal.runtime.run import HeldOut

SEEN = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
NOISE, COLD = torch.rand(64, 1, generator=torch.Generator().manual_seed(1)), torch.zeros(64)


@pytest.fixture
def networks(tmp_path):
    """Directories of two networks, and the networks; of unlike sizes."""
    made = [Greedy(observations=4, actions=2, hidden=(8 * (n + 1),), scale=3.0).load(n) for n in range(2)]
    for n, network in enumerate(made):
        network.save(tmp_path / str(n))
    return [str(tmp_path / str(n)) for n in range(2)], made


def constant(directory, *values):
    """A network that says these values of every observation."""
    network = Greedy(observations=4, actions=2, hidden=(8,)).load(0)
    with torch.no_grad():
        network.net[-1].weight.zero_()
        network.net[-1].bias.copy_(torch.tensor(values))
    network.save(directory)
    return str(directory)


def test_the_least_decides_and_not_the_mean(tmp_path):
    beside = (constant(tmp_path / "a", 1.0, 3.5), constant(tmp_path / "b", 2.0, 0.0))
    policy = LeastValues(beside=beside).load()
    assert policy.values(SEEN).unique(dim=0).tolist() == [[1.0, 0.0]]
    action_BA, logprob_B = policy.draw(SEEN, NOISE, torch.ones(64))
    assert action_BA.unique().tolist() == [0] and logprob_B.tolist() == [0.0] * 64
    logprob_K, _ = policy.assess(SEEN[:2], torch.tensor([[0], [1]]), 1.0)
    assert logprob_K.tolist() == [0.0, -torch.inf]


def test_one_network_is_its_own_greedy_policy(networks):
    (first, _), (own, _) = networks
    policy = LeastValues(model=first).load()
    assert torch.equal(policy.values(SEEN), own.values(SEEN))
    assert torch.equal(policy.draw(SEEN, NOISE, COLD)[0], own.draw(SEEN, NOISE, COLD)[0])


def test_equal_networks_are_one(networks):
    (first, _), _ = networks
    assert torch.equal(
        LeastValues(model=first, beside=(first,)).load().values(SEEN), LeastValues(model=first).load().values(SEEN)
    )


def test_a_network_that_is_lower_everywhere_decides_alone(networks, tmp_path):
    (first, _), (_, low) = networks
    with torch.no_grad():
        low.net[-1].bias.sub_(100.0)
    low.save(tmp_path / "low")
    policy = LeastValues(beside=(first, str(tmp_path / "low"))).load()
    assert torch.equal(policy.draw(SEEN, NOISE, COLD)[0], low.draw(SEEN, NOISE, COLD)[0])


def test_networks_of_any_sizes_go_together(networks):
    places, made = networks
    least = torch.minimum(*(network.values(SEEN) for network in made))
    for spec in (LeastValues(beside=tuple(places)), LeastValues(beside=(places[1],)).at(Path(places[0]))):
        assert torch.equal(spec.load().values(SEEN), least)


def test_it_is_evaluated_over_a_family(networks):
    spec = LeastValues(beside=tuple(networks[0]))
    tasks = Gymnasium(environment="CartPole-v1", grid={"length": (0.25, 2.0)}, size=4)
    run = replace(recipes.load("dqn"), policy=spec, held_out=HeldOut(tasks=tasks, samples=1))
    found = evaluate_held_out(run, spec.load())
    assert found.score == found.greedy_score > found.worst["greedy_score"] > 0


def test_what_has_no_networks_is_refused(networks, tmp_path):
    with pytest.raises(ValueError, match=r"has no networks: name directories that runs of dqn saved"):
        LeastValues()
    with pytest.raises(ValueError, match="holds no"):
        LeastValues(beside=(str(tmp_path / "none"),)).load()
    other = Greedy(observations=3, actions=2).load(0)
    other.save(tmp_path / "other")
    with pytest.raises(ValueError, match="of the same observations and choices"):
        LeastValues(beside=(networks[0][0], str(tmp_path / "other"))).load()
