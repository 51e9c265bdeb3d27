"""The actor-critic whose critic changes rarely: its critic and its limits against dynamic programming, and how often it changes."""

import numpy as np
import pytest

from gimbal.environments.tabular import combination, river
from gimbal.environments.uncertain import greedy, planned, worth
from gimbal.learning.rare_switching import RareSwitching
from gimbal.learning.robust import RobustPolicyOptimization, tilted

PROBLEMS = {"river": river(), "lock": combination()}


def often(problem, times):
    """Every action taken so often in every state, led to where the transitions lead."""
    return times * problem.transition_SAS, times * (1 - problem.transition_SAS.sum(-1))


@pytest.mark.parametrize("name", PROBLEMS)
def test_after_many_visits_its_critic_is_that_of_dynamic_programming(name):
    problem = PROBLEMS[name]
    found_HSA = RareSwitching(bonus=0.0).critic(problem, *often(problem, 1e6))
    assert np.allclose(found_HSA, planned(problem))
    optimistic_HSA = RareSwitching(bonus=0.5).critic(problem, *often(problem, 100.0))
    assert (optimistic_HSA >= planned(problem) - 1e-12).all() and (optimistic_HSA[0] > planned(problem)[0]).any()


def test_what_was_never_tried_is_worth_the_most_there_can_be():
    problem = river()
    found_HSA = RareSwitching().critic(problem, *often(problem, 0.0))
    assert (found_HSA == np.arange(20, 0, -1)[:, None, None]).all()


def test_by_hand_of_two_episodes_of_the_lock():
    """Nothing is known: the first policy is uniform; the second is begun anew, tilted by a critic that knows one failure."""
    problem, method = combination(), RareSwitching(eta=2.0, bonus=0.1)
    (first, none), (second, one) = method.policies(problem, 2, np.random.default_rng(4))
    assert np.allclose(first, 1 / 3) and (none, one) == (0, 1)
    visits, ends = np.zeros((4, 3, 4)), np.zeros((4, 3))
    rng, state = np.random.default_rng(4), 0
    for _ in range(4):
        action = int(rng.choice(3, p=first[0, 0]))
        if not problem.transition_SAS[state, action].any():
            ends[state, action] += 1
            break
        visits[state, action, int(rng.choice(4, p=problem.transition_SAS[state, action]))] += 1
        state += 1
    q_HSA = method.critic(problem, visits, ends)
    wanted_HSA = np.exp(2 * q_HSA) / np.exp(2 * q_HSA).sum(-1, keepdims=True)
    assert np.allclose(second, wanted_HSA) and not np.allclose(second, 1 / 3)


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_finds_the_best_policy_and_changes_as_rarely_as_it_says(name):
    problem = PROBLEMS[name]
    *_, (last_HSA, changes) = RareSwitching(bonus=0.3).policies(problem, 1500, np.random.default_rng(0))
    best = problem.values()[0]
    assert worth(problem, last_HSA) > 0.97 * best
    states, actions = problem.reward_SA.shape
    assert 4 < changes <= states * actions * (np.log2(1500 * problem.horizon) + 1)


def test_a_large_eta_is_optimistic_value_iteration_that_plans_anew_when_a_count_doubles():
    problem = river()
    bold = RareSwitching(eta=1e6, bonus=0.3)
    for policy_HSA, _ in list(bold.policies(problem, 60, np.random.default_rng(0)))[40:]:
        assert np.allclose(policy_HSA.max(-1), 1) or np.allclose(policy_HSA.max(-1)[policy_HSA.max(-1) < 0.99], 0.5)
    assert worth(problem, greedy(policy_HSA)) == pytest.approx(worth(problem, policy_HSA), rel=0.2)


def test_without_a_new_start_the_actor_goes_on_from_what_it_was():
    problem = combination()
    kept = [policy for policy, _ in RareSwitching(reset=False, eta=0.5).policies(problem, 5, np.random.default_rng(0))]
    anew = [policy for policy, _ in RareSwitching(eta=0.5).policies(problem, 5, np.random.default_rng(0))]
    assert np.array_equal(kept[1], anew[1]), "until then it was uniform"
    assert np.abs(kept[2] - 1 / 3).max() > np.abs(anew[2] - 1 / 3).max(), "a second step beside a first"


def test_tilting_is_softmax_and_keeps_what_is_never_done():
    policy, score = np.array([[[0.2, 0.8, 0.0]]]), np.array([[[1.0, 0.0, 5.0]]])
    wanted = np.array([0.2 * np.e, 0.8, 0.0])
    assert np.allclose(tilted(policy, score)[0, 0], wanted / wanted.sum())


def test_the_policies_of_the_robust_learner_are_those_that_it_ends_with():
    problem, method = combination(), RobustPolicyOptimization()
    every = [*method.policies(problem, 6, np.random.default_rng(3))]
    for count in (0, 2, 5):
        assert np.array_equal(method(problem, count, np.random.default_rng(3)), every[count])


def test_settings_are_refused():
    for wrong in ({"eta": 0.0}, {"eta": np.inf}, {"bonus": -1.0}):
        with pytest.raises(ValueError, match=r"RareSwitching has eta .* and bonus"):
            RareSwitching(**wrong)
