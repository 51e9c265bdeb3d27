"""The hypergrid pays as published, and ends are carried through it exactly."""

import math
from itertools import product

import gymnasium
import numpy as np
import pytest

from gimbal.environments import hypergrid
from gimbal.environments.gym import Environment
from gimbal.environments.hypergrid import DIMENSIONS, SIDE, Hypergrid
from gimbal.records import Task

EVERY = hypergrid.cells()
PLACE = {tuple(cell): k for k, cell in enumerate(EVERY.tolist())}


def after(cell, action):
    """The next cell, or None at the end."""
    if action == DIMENSIONS or cell[action] == SIDE - 1:
        return None
    return tuple(x + (axis == action) for axis, x in enumerate(cell))


def best(paid, temperature):
    """The policy that maximises E[what is paid] + temperature x the entropy of its ways, by dynamic programming; and its value."""
    value_K, policy_KA = np.zeros(len(EVERY)), np.zeros((len(EVERY), DIMENSIONS + 1))
    for k in reversed(range(len(EVERY))):
        cell = tuple(EVERY[k].tolist())
        worth_A = []
        for action in range(DIMENSIONS + 1):
            then = after(cell, action)
            worth_A.append(paid(cell, then) + (0 if then is None else value_K[PLACE[then]]))
        scaled_A = np.array(worth_A) / temperature
        most = scaled_A.max()
        value_K[k] = temperature * (most + np.log(np.exp(scaled_A - most).sum()))
        policy_KA[k] = np.exp(scaled_A - value_K[k] / temperature)
    return policy_KA, value_K[0]


def flow_pays(cell, then):
    return hypergrid.log_paid(np.array(cell if then is None else then), ends=then is None)


def overlap(policy_KA):
    return 1 - np.abs(hypergrid.ends_of(policy_KA) - hypergrid.target()).sum() / 2


def test_the_rewards_of_the_paper():
    reward_K = hypergrid.reward(EVERY)
    found = {value: int(np.isclose(reward_K, value).sum()) for value in (2.51, 0.51, 0.01)}
    assert found == {2.51: 4, 0.51: 12, 0.01: 48}
    assert {tuple(cell) for cell in EVERY[hypergrid.modes()].tolist()} == set(product((1, 6), repeat=2))
    assert hypergrid.target().sum() == pytest.approx(1)


def test_ends_are_those_of_every_way():
    """Against all ways of a policy that is drawn at random, one after the other."""
    policy_KA = np.random.default_rng(0).dirichlet(np.ones(DIMENSIONS + 1), len(EVERY))
    expected_K = np.zeros(len(EVERY))

    def go(cell, probability, left):
        for action in range(DIMENSIONS + 1):
            share, then = probability * policy_KA[PLACE[cell], action], after(cell, action)
            if then is None:
                expected_K[PLACE[cell]] += share
            elif left:
                go(then, share, left - 1)

    go((0,) * DIMENSIONS, 1.0, 6)
    near_K = EVERY.sum(1) <= 6
    np.testing.assert_allclose(hypergrid.ends_of(policy_KA)[near_K], expected_K[near_K])
    assert hypergrid.ends_of(policy_KA).sum() == pytest.approx(1)


def test_what_flows_pay_makes_the_soft_optimum_draw_ends_in_proportion():
    policy_KA, value = best(flow_pays, 1.0)
    np.testing.assert_allclose(hypergrid.ends_of(policy_KA), hypergrid.target(), rtol=1e-9)
    assert value == pytest.approx(math.log(hypergrid.reward(EVERY).sum()))  # log Z
    # The returns of all ways to a cell add up to its reward.
    total_K = np.zeros(len(EVERY))

    def go(cell, paid):
        for action in range(DIMENSIONS + 1):
            then = after(cell, action)
            if then is None:
                total_K[PLACE[cell]] += math.exp(paid + flow_pays(cell, None))
            else:
                go(then, paid + flow_pays(cell, then))

    go((0,) * DIMENSIONS, 0.0)
    np.testing.assert_allclose(total_K, hypergrid.reward(EVERY))


def test_the_entropy_of_ways_does_not_draw_ends_in_proportion_at_any_coefficient():
    """As the claim on flows says: at most .27."""

    def pays(cell, then):
        return float(hypergrid.reward(np.array([cell]))[0]) if then is None else 0.0

    most = max(overlap(best(pays, c)[0]) for c in (0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0))
    assert 0.26 < most < 0.27


def test_what_an_episode_pays():
    for flow in (False, True):
        env = Hypergrid(flow=flow)
        shown, _ = env.reset(seed=0)
        assert shown.nonzero()[0].tolist() == [0, SIDE]
        cell, paid = (0,) * DIMENSIONS, 0.0
        for action in (0, 1, 1, 0, *[0] * 6):  # to (7, 2), and out of the grid from there
            then = after(cell, action)
            shown, reward, ended, cut, _ = env.step(action)
            expected = flow_pays(cell, then) if flow else 0.0 if then else float(hypergrid.reward(np.array([cell]))[0])
            assert reward == pytest.approx(expected) and ended == (then is None) and not cut
            cell, paid = then or cell, paid + reward
        assert ended and cell == (7, 2) and shown.nonzero()[0].tolist() == [7, SIDE + 2]
        assert paid == pytest.approx(math.log(0.01 / 2) - 8 * math.log(2) if flow else 0.01)


@pytest.mark.parametrize("name", ["Hypergrid", "flow"])
def test_it_is_found_as_a_user_types_it(name):
    environment = Environment(f"gimbal.environments.hypergrid:{name}")
    assert environment.interface == "16 observations, 3 choices"
    assert environment.reset(Task(id="0"), 0).sum() == DIMENSIONS
    assert isinstance(environment._env, gymnasium.Env) and environment._env.flow == (name == "flow")
