"""Prescribed samples by optimistic shortest paths: expected steps against a linear system, walks by hand, and what is refused."""

import numpy as np
import pytest

from gimbal.environments.tabular import Problem, combination, put, river
from gimbal.learning.collection import ShortestPaths, without_ends

RIVER = without_ends(river())


def hitting(transition_SAS, action_S, goal_S):
    """Expected steps of a policy to its goals, by solving for them."""
    leads_SS = transition_SAS[np.arange(len(action_S)), action_S] * ~goal_S[:, None]
    return np.linalg.solve(np.eye(len(action_S)) - leads_SS, (~goal_S).astype(float))


def chain(states):
    """Action 0 begins again, action 1 goes on, and at the end both begin again."""
    transition_SAS = np.zeros((states, 2, states))
    transition_SAS[:, 0, 0] = 1
    transition_SAS[np.arange(states), 1, (np.arange(states) + 1) % states] = 1
    return Problem(transition_SAS=transition_SAS, reward_SA=np.zeros((states, 2)), horizon=states)


def only(state, problem, many=1, action=None):
    wanted_SA = np.zeros(problem.reward_SA.shape, int)
    wanted_SA[state, slice(None) if action is None else action] = many
    return wanted_SA


@pytest.mark.parametrize("goal", range(6))
def test_after_many_visits_it_knows_the_expected_steps(goal):
    goal_S = np.arange(6) == goal
    value_S, action_S = ShortestPaths().paths(1e9 * RIVER, goal_S)
    np.testing.assert_allclose(value_S, hitting(RIVER, action_S, goal_S), rtol=1e-4)
    every = [
        hitting(RIVER, np.where(goal_S, 0, np.array(policy)), goal_S) for policy in ((np.arange(6) < goal).astype(int),)
    ]
    np.testing.assert_allclose(value_S, np.min(every, 0), rtol=1e-4)
    assert (action_S == (np.arange(6) < goal))[~goal_S].all(), "left from the right of it, right from the left"


def test_it_is_optimistic_and_what_was_never_tried_is_one_step_away():
    goal_S = np.arange(6) == 5
    exact_S = ShortestPaths().paths(1e9 * RIVER, goal_S)[0]
    for visits in (1, 10, 100):
        assert (ShortestPaths().paths(visits * RIVER, goal_S)[0] <= exact_S + 1e-4).all()
    once = 100 * RIVER
    once[2, 0] = 0
    value_S, action_S = ShortestPaths().paths(once, goal_S)
    assert (value_S[2], action_S[2]) == (1, 0)
    far_S = ShortestPaths(prior=1e9).paths(100 * RIVER, goal_S)[0]
    np.testing.assert_allclose(far_S, 1.0 * ~goal_S, atol=1e-4)


def test_a_walk_by_hand():
    """Of the last of four states: three steps there, of which none is taken twice; its two actions need another round."""
    problem = chain(4)
    wanted_SA = only(3, problem)
    found = ShortestPaths().__call__(problem, wanted_SA, np.random.default_rng(0))
    count_SA = found.visits_SAS.sum(-1)
    assert (count_SA[3] == 1).all() and count_SA.sum() == found.steps
    forward = count_SA[:3, 1]
    assert (forward >= 2).all() and found.steps == count_SA[:3].sum() + 2
    known = ShortestPaths().paths(1e9 * problem.transition_SAS, np.arange(4) == 3)[0]
    assert known == pytest.approx([3, 2, 1, 0], abs=1e-4)


@pytest.mark.parametrize("problem", [river(), put(), combination()], ids=["river", "put", "lock"])
def test_all_that_is_asked_for_comes_and_a_state_is_left_only_when_it_lacks_nothing(problem):
    wanted_SA = np.full(problem.reward_SA.shape, 7)
    found = ShortestPaths()(problem, wanted_SA, np.random.default_rng(3))
    count_SA = found.visits_SAS.sum(-1)
    assert (count_SA >= wanted_SA).all() and count_SA.sum() == found.steps
    assert (found.visits_SAS > 0)[without_ends(problem) == 0].sum() == 0
    none = ShortestPaths()(problem, 0 * wanted_SA, np.random.default_rng(3))
    assert none.steps == 0 and not none.visits_SAS.any()


def test_it_takes_far_fewer_steps_than_chance():
    wanted_SA = only(5, river(), 10)
    own = [ShortestPaths()(river(), wanted_SA, np.random.default_rng(seed)).steps for seed in range(5)]
    assert np.mean(own) < np.mean([by_chance(wanted_SA, np.random.default_rng(seed)) for seed in range(5)]) / 4


def by_chance(wanted_SA, generator):
    count_SA, state = np.zeros(wanted_SA.shape, int), 0
    while (count_SA < wanted_SA).any():
        action = int(generator.integers(2))
        count_SA[state, action] += 1
        state = int(generator.choice(6, p=RIVER[state, action]))
    return int(count_SA.sum())


def test_what_cannot_be_collected_is_refused():
    leaves = chain(3).transition_SAS.copy()
    leaves[:, 0] = leaves[2] = np.eye(3)[2]
    once = Problem(transition_SAS=leaves, reward_SA=np.zeros((3, 2)), horizon=3)
    draw = np.random.default_rng(0)
    with pytest.raises(ValueError, match="state 1 is not reached from every state that is"):
        ShortestPaths()(once, only(1, once), draw)
    assert ShortestPaths()(once, only(2, once), draw).steps > 2
    with pytest.raises(ValueError, match="samples are lacking after 3 steps: raise most"):
        ShortestPaths(most=3)(river(), only(5, river()), draw)
    for wrong in (np.ones((2, 2), int), -only(0, river())):
        with pytest.raises(
            ValueError, match="a number of samples, 0 or above, of each of 2 actions in each of 6 states"
        ):
            ShortestPaths()(river(), wrong, draw)
    for wrong in ({"prior": 0.0}, {"most": 0}):
        with pytest.raises(ValueError, match="ShortestPaths has prior"):
            ShortestPaths(**wrong)
