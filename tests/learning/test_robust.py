"""Robust values against a linear program and closed forms; incremental worst cases and DR-RPO against exact dynamic programming."""

import itertools

import numpy as np
import pytest

from gimbal.environments.tabular import Problem, put, river
from gimbal.environments.uncertain import Divergence, TotalVariation, greedy, planned, worth
from gimbal.learning.robust import RobustPolicyOptimization, WorstCases

ROWS = np.random.default_rng(0).dirichlet(np.ones(5), size=12)
ROWS[0] = [0, 0, 1, 0, 0]
ROWS[1] = [0.5, 0, 0, 0.5, 0]
VALUES = np.array([0.3, -1.0, 2.0, 0.7, 0.0])


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.4, 1.0])
def test_the_dual_of_total_variation_is_the_linear_program(radius):
    """Over q and the positive and negative parts of q - p."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    n = len(VALUES)
    cost = np.concatenate([VALUES, np.zeros(2 * n)])
    for row, found in zip(ROWS, TotalVariation(radius=radius).least(ROWS, VALUES), strict=True):
        equal = np.zeros((n + 1, 3 * n))
        equal[:n] = np.concatenate([np.eye(n), -np.eye(n), np.eye(n)], 1)
        equal[n, :n] = 1
        least = linprog(
            cost,
            A_ub=[np.concatenate([np.zeros(n), np.full(2 * n, 0.5)])],
            b_ub=[radius],
            A_eq=equal,
            b_eq=[*row, 1.0],
        )
        assert found == pytest.approx(least.fun, abs=1e-7)


def test_a_divergence_of_two_outcomes_is_known_in_closed_form():
    """Around a fair coin: KL = q log 2q + (1 - q) log 2(1 - q), solved for q by bisection."""
    for radius in (0.01, 0.1, 0.5):
        low, high = 0.5, 1.0
        for _ in range(80):
            q = (low + high) / 2
            far = q * np.log(2 * q) + (1 - q) * np.log(2 * (1 - q)) > radius
            low, high = (low, q) if far else (q, high)
        found = Divergence(radius=radius).least(np.array([0.5, 0.5]), np.array([0.0, 3.0]))
        assert float(found) == pytest.approx(3 * (1 - low), abs=1e-6)


def test_limits_of_both_sets():
    for kind in (TotalVariation, Divergence):
        assert np.allclose(kind(radius=0.0).least(ROWS, VALUES), ROWS @ VALUES)
        smaller, larger = (kind(radius=radius).least(ROWS, VALUES) for radius in (0.1, 0.3))
        assert (larger <= smaller + 1e-12).all() and (smaller <= ROWS @ VALUES + 1e-12).all()
        assert kind(radius=0.3).least(np.zeros(5), VALUES) == 0, "the end is worth 0"
        assert kind(radius=0.3).least(ROWS, np.ones(5)) == pytest.approx(1.0)
        with pytest.raises(ValueError, match=r"radius is -1\.0"):
            kind(radius=-1.0)
    assert np.allclose(TotalVariation(radius=1.0).least(ROWS, VALUES), VALUES.min())
    reached = np.where(ROWS > 0, VALUES, np.inf).min(-1)
    assert np.allclose(Divergence(radius=200.0).least(ROWS, VALUES), reached, atol=1e-4)


@pytest.mark.parametrize("problem", [put(), river()])
def test_without_uncertainty_planning_is_dynamic_programming(problem):
    q_HSA = planned(problem)
    assert np.allclose(q_HSA[0].max(1), problem.values())
    assert worth(problem, greedy(q_HSA)) == pytest.approx(problem.values()[0])
    uniform = np.full(problem.reward_SA.shape, 0.5)
    assert worth(problem, np.stack([uniform] * problem.horizon)) == pytest.approx(problem.values(uniform)[0])


def test_the_best_against_the_worst_case_is_best_there_and_not_elsewhere():
    problem, near = put(), TotalVariation(radius=0.1)
    robust, plain = greedy(planned(problem, near)), greedy(planned(problem))
    assert worth(problem, robust, near) == pytest.approx(0.1154, abs=1e-4)
    assert worth(problem, plain, near) == pytest.approx(0.0681, abs=1e-4)
    assert worth(problem, robust) == pytest.approx(0.2195, abs=1e-4) and worth(problem, plain) > 0.246


def rounds(family, **settings):
    """With tables: models are solved exactly, and policies are greedy for the least of their values."""

    def returns(solved, model):
        return worth(family[model], greedy(np.minimum.reduce(list(solved))))

    return WorstCases(**settings)(range(len(family)), lambda model: planned(family[model]), returns)


def layered(seed, layers=3, width=2, actions=2):
    """A problem whose states know the time, and all that it is when each state has one of two rows of transitions: 64 of them."""
    random, states = np.random.default_rng(seed), layers * width
    reward_SA, rows = random.random((states, actions)), np.zeros((2, states, actions, states))
    for state in range(states - width):
        after = (state // width + 1) * width
        rows[:, state, :, after : after + width] = random.dirichlet(np.ones(width) / 2, size=(2, actions))
    chosen = itertools.product((0, 1), repeat=states - width)
    family = [rows[[*which, *[0] * width], np.arange(states)] for which in chosen]
    value_S = np.zeros(states)
    for _ in range(layers):
        value_S = (reward_SA + rows @ value_S).min(0).max(1)
    return [Problem(transition_SAS=x, reward_SA=reward_SA, horizon=layers) for x in family], float(value_S[0])


def test_against_every_combination_of_transitions_the_worst_cases_end_at_the_exact_robust_policy():
    """The first round of it is not always the least: in one of these the policy gets worse before it is the best."""
    first = []
    for seed in range(20):
        family, exact = layered(seed)
        found = rounds(family, most=4)
        assert found.converged and found.least[-1] == pytest.approx(exact, abs=1e-9)
        first.append(found.least[0] < exact - 1e-4)
    assert sum(first) == 3, "in most of these the policy of any one model is the best against all"


def test_a_family_of_one_is_its_own_best_policy():
    found = rounds([river()])
    assert found.models == (0,) and found.converged and found.least == (pytest.approx(river().values()[0]),)


def test_a_worse_model_is_found_and_held_against():
    family = [put(up) for up in (0.5, 0.3, 0.4, 0.6, 0.7)]
    found = rounds(family)
    assert found.models == (0, 4) and found.converged
    best = planned(family[4])[0].max(1)[0]
    assert found.least[1] == pytest.approx(best) and found.least[0] < 0.9 * best
    assert not rounds(family, most=1).converged


def test_rounds_are_counted_and_tolerated():
    assert rounds([put(up) for up in (0.5, 0.7)], tolerance=1.0).models == (0,)
    with pytest.raises(ValueError, match="most 0"):
        WorstCases(most=0)


def visited(problem, times):
    """Each action of each state, so often, in its exact shares."""
    ends_SA = np.where(problem.transition_SAS.any(-1), 0, times)
    return times * problem.transition_SAS, ends_SA, np.full((problem.horizon, *problem.reward_SA.shape), 0.5)


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.2])
def test_after_many_visits_it_is_the_exact_robust_policy(radius):
    problem, near = put(), TotalVariation(radius=radius)
    method = RobustPolicyOptimization(uncertainty=near, eta=1e6, bonus=0.0)
    policy_HSA = method.policy(problem, *visited(problem, 1e9))
    assert worth(problem, policy_HSA, near) == pytest.approx(planned(problem, near)[0].max(1)[0], abs=1e-5)


def test_the_policy_is_the_reference_tilted_by_its_values():
    """At the last step values are rewards alone."""
    problem = put()
    visits, ends, _ = visited(problem, 1e9)
    reference = np.tile(np.array([0.8, 0.2]), (problem.horizon, len(problem.reward_SA), 1))
    policy = RobustPolicyOptimization(eta=2.0, bonus=0.0).policy(problem, visits, ends, reference)[-1]
    tilted = reference[-1] * np.exp(2.0 * problem.reward_SA)
    assert np.allclose(policy, tilted / tilted.sum(1, keepdims=True))


def test_optimism_values_what_was_not_tried_and_is_cut_at_the_largest_return():
    problem = put()
    nothing = np.zeros_like(problem.transition_SAS), np.zeros_like(problem.reward_SA), visited(problem, 1)[2]
    shy, bold = (RobustPolicyOptimization(eta=1e4, bonus=b, prior=1.0).policy(problem, *nothing) for b in (0.0, 10.0))
    assert shy[0, 2, 1] == pytest.approx(1.0), "it sells one rung below, since holding is worth nothing to it"
    assert np.allclose(bold[0], 0.5), "both actions are worth the most that there can be"


def test_it_learns_the_robust_policy_from_episodes_of_the_unshifted_problem_and_is_of_its_generator():
    problem, near = put(), TotalVariation(radius=0.1)
    robust, again, plain = (
        RobustPolicyOptimization(uncertainty=TotalVariation(radius=radius))(problem, 300, np.random.default_rng(1))
        for radius in (0.1, 0.1, 0.0)
    )
    assert np.array_equal(robust, again)
    assert worth(problem, robust, near) > worth(problem, plain, near) + 0.01
    assert worth(problem, plain) > worth(problem, robust) + 0.01
    flat = RobustPolicyOptimization(uncertainty=near, trailing=False)(problem, 300, np.random.default_rng(1))
    assert worth(problem, robust, near) > worth(problem, flat, near) + 0.01, "its steps add up"


@pytest.mark.parametrize("uncertainty", [Divergence(radius=0.1), TotalVariation(radius=0.0)])
def test_what_a_row_lacks_is_the_end_and_is_not_taken_for_caution(uncertainty):
    whole_S, value_S = np.array([0.2, 0.5, 0.3]), np.array([0.0, 1.0, 2.0])
    wanted = 0.4 * uncertainty.least(whole_S, value_S)
    assert uncertainty.least(0.4 * whole_S, value_S) == pytest.approx(wanted, abs=1e-9)
    assert uncertainty.least(0 * whole_S, value_S) == 0
