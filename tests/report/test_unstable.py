"""Directions along which decisions flip, where they are known: linear values."""

import math

import numpy as np
import pytest
import torch

from gimbal.policies.greedy import Greedy
from gimbal.report.unstable import UnstableDirections

STATES = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 2.0, 0.5])
WEIGHTS = torch.tensor([[1.0, 0.0, -0.5], [0.4, 0.5, 0.5]])
SPREAD = STATES.std(0)


def linear(states):
    return states @ WEIGHTS.T + torch.tensor([0.0, 0.3])


def drawn(seed=0):
    return np.random.default_rng(seed)


def test_linear_values_of_two_choices_have_one_direction():
    found = UnstableDirections()(linear, STATES, drawn())
    apart = (WEIGHTS[0] - WEIGHTS[1]) * SPREAD
    assert abs(float(found.direction_OO[0] @ apart)) == pytest.approx(float(apart.norm()), rel=1e-5)
    assert float(found.strength_O[0]) == pytest.approx(float(apart.square().sum()), rel=1e-5)
    assert found.strength_O[1:].abs().max() < 1e-5


def test_the_cost_is_the_distance_to_the_other_choice():
    """margin / |gradient|, to within a step of the search; a random direction needs more."""
    found = UnstableDirections()(linear, STATES, drawn())
    margin = (linear(STATES)[:, 0] - linear(STATES)[:, 1]).abs()
    exact = float((margin / ((WEIGHTS[0] - WEIGHTS[1]) * SPREAD).norm()).median())
    assert exact <= found.cost <= exact + 4.0 / 200
    assert found.random_cost > 1.3 * found.cost


def test_values_that_do_not_depend_on_the_state_have_none():
    found = UnstableDirections()(lambda states: 0 * states[:, :2] + torch.tensor([1.0, 0.0]), STATES, drawn())
    assert not found.strength_O.any() and found.cost == found.random_cost == math.inf


def test_units_of_what_is_observed_change_nothing():
    scale = torch.tensor([10.0, 0.1, 1.0])
    one = UnstableDirections()(linear, STATES, drawn())
    other = UnstableDirections()(lambda states: linear(states / scale), STATES * scale, drawn())
    assert other.cost == pytest.approx(one.cost) and torch.allclose(other.strength_O, one.strength_O, atol=1e-5)


def test_a_network_goes_through_it_and_stays_as_it_was():
    policy = Greedy(observations=3, actions=4, hidden=(16,)).load(1)
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    one, again = (UnstableDirections()(policy.values, STATES, drawn(2)) for _ in range(2))
    assert one.cost == again.cost and one.random_cost == again.random_cost and one.strength_O[0] > one.strength_O[1] > 0
    assert all(weight.equal(before[name]) for name, weight in policy.state_dict().items())
    assert all(weight.grad is None for weight in policy.parameters())


@pytest.mark.parametrize("settings", [{"most": 0.0}, {"most": math.inf}, {"random": 0}])
def test_settings_that_find_nothing_are_refused(settings):
    with pytest.raises(ValueError, match=r"most .* \(a distance above 0\) and random .* \(directions, at least 1\)"):
        UnstableDirections(**settings)


def test_one_state_has_no_spread():
    with pytest.raises(ValueError, match="at least 2 observations, got 1"):
        UnstableDirections()(linear, STATES[:1], drawn())
