"""Estimates of k from n samples, against all subsets."""

from itertools import combinations
from math import comb
from statistics import mean

import numpy as np
import pytest

from gimbal.ops.estimators import (
    cons_at_k,
    generalisation_factor,
    max_at_k,
    pareto_front,
    pass_all_k,
    pass_at_arc,
    pass_at_k,
)

CASES = [(n, c, k) for n in range(1, 8) for c in range(n + 1) for k in range(1, n + 1)]


def test_they_are_means_over_all_subsets():
    for n, c, k in CASES:
        verdicts = [1.0] * c + [0.0] * (n - c)
        subsets = list(combinations(verdicts, k))
        assert pass_at_k(n, c, k) == pytest.approx(mean(max(s) for s in subsets), abs=1e-12)
        assert pass_all_k(n, c, k) == pytest.approx(mean(min(s) for s in subsets), abs=1e-12)
    scores = [0.3, -1.0, 2.5, 0.3, 7.0, -2.0]
    for k in range(1, 7):
        expected = mean(max(s) for s in combinations(scores, k))
        assert max_at_k(scores, k) == pytest.approx(expected, abs=1e-12)


def test_cons_at_k_is_the_mean_over_all_subsets_with_ties_shared():
    def right(answer):
        return answer == "4"

    assert cons_at_k(["4", "4", "5"], right, 3) == 1.0
    assert cons_at_k(["4", "5"], right, 2) == 0.5
    assert cons_at_k(["4", "4", "5"], right, 2) == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert cons_at_k([None, None, "4"], right, 3) == 1.0
    assert cons_at_k([None, None], right, 2) == 0.0


def test_cons_at_k_of_many_samples_is_drawn_and_repeats():
    answers = ["4"] * 14 + ["5"] * 10
    drawn = cons_at_k(answers, lambda a: a == "4", 11, seed=3)
    exact = sum(comb(14, i) * comb(10, 11 - i) for i in range(6, 12)) / comb(24, 11)
    assert drawn == cons_at_k(answers, lambda a: a == "4", 11, seed=3)
    assert drawn == pytest.approx(exact, abs=0.04)


def test_reduces_to_the_mean_at_k_1():
    for n, c, k in CASES:
        if k == 1:
            verdicts = [1.0] * c + [0.0] * (n - c)
            found = (pass_at_k(n, c, 1), pass_all_k(n, c, 1), max_at_k(verdicts, 1))
            assert found == pytest.approx((c / n,) * 3, abs=1e-12)


def test_reduces_to_the_share_solved_without_a_discount():
    assert pass_at_arc([True, False, True, False], [3, 9, 0, 1], discount=1.0) == 0.5
    assert pass_at_arc([True, False, True, False], [2, 9, 0, 1]) == pytest.approx((0.81 + 1) / 4)
    assert pass_at_arc([True, True], [0, 2], discount=0.0) == 0.5


def test_large_counts_stay_exact():
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5, abs=1e-12)
    assert 0 < pass_all_k(2000, 1999, 1000) == pytest.approx(0.5, abs=1e-12)
    assert max_at_k([0.0] * 1999 + [1.0], 1000) == pytest.approx(0.5, abs=1e-12)


def test_the_plug_in_estimate_is_biased_and_this_one_is_not():
    n, k, p = 8, 4, 0.25
    draws = np.random.default_rng(0).binomial(n, p, size=200_000)
    truth = 1 - (1 - p) ** k
    table = np.array([pass_at_k(n, c, k) for c in range(n + 1)])
    assert table[draws].mean() == pytest.approx(truth, abs=3e-3)
    assert (1 - (1 - draws / n) ** k).mean() < truth - 0.03


def test_the_generalisation_factor_weighs_other_tasks_more():
    assert generalisation_factor(0.2, 0.2) == pytest.approx(0.2)
    assert generalisation_factor(0.1, 0.2) > generalisation_factor(0.2, 0.1)
    assert generalisation_factor(0.1, 0.2, beta=1.0) == pytest.approx(2 * 0.02 / 0.3)
    assert generalisation_factor(-0.1, 0.2) == generalisation_factor(0.0, 0.0) == 0.0


def test_the_pareto_front_keeps_what_no_other_point_beats():
    points = [(0.9, 5.0), (0.9, 4.0), (0.5, 1.0), (0.4, 2.0), (0.5, 1.0)]
    assert pareto_front(points) == [1, 2, 4]
    assert pareto_front([]) == []


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1)])
def test_counts_that_cannot_be_are_refused(n, c, k):
    with pytest.raises(ValueError, match="samples"):
        pass_at_k(n, c, k)
    with pytest.raises(ValueError, match="not finite"):
        max_at_k([0.0, float("nan")], 1)
    with pytest.raises(ValueError, match="every task"):
        pass_at_arc([True], [])
