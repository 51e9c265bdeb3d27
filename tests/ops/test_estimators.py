"""Estimates of k from n samples, against all subsets."""

from itertools import combinations
from statistics import mean

import numpy as np
import pytest

from gimbal.ops.estimators import pass_at_k

CASES = [(n, c, k) for n in range(1, 8) for c in range(n + 1) for k in range(1, n + 1)]


def test_it_is_the_mean_over_all_subsets():
    for n, c, k in CASES:
        verdicts = [1.0] * c + [0.0] * (n - c)
        subsets = list(combinations(verdicts, k))
        assert pass_at_k(n, c, k) == pytest.approx(mean(max(s) for s in subsets), abs=1e-12)


def test_reduces_to_the_mean_at_k_1():
    for n, c, k in CASES:
        if k == 1:
            assert pass_at_k(n, c, 1) == pytest.approx(c / n, abs=1e-12)


def test_large_counts_stay_exact():
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5, abs=1e-12)


def test_the_plug_in_estimate_is_biased_and_this_one_is_not():
    n, k, p = 8, 4, 0.25
    draws = np.random.default_rng(0).binomial(n, p, size=200_000)
    truth = 1 - (1 - p) ** k
    table = np.array([pass_at_k(n, c, k) for c in range(n + 1)])
    assert table[draws].mean() == pytest.approx(truth, abs=3e-3)
    assert (1 - (1 - draws / n) ** k).mean() < truth - 0.03


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1)])
def test_counts_that_cannot_be_are_refused(n, c, k):
    with pytest.raises(ValueError, match="samples"):
        pass_at_k(n, c, k)
