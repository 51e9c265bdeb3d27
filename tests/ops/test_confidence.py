"""Quantiles against tables, and bounds against what they promise: coverage over many samples."""

import math

import numpy as np
import pytest
import torch

from gimbal.ops.confidence import (
    binomial_upper,
    hoeffding_upper,
    incomplete_beta,
    student_quantile,
    student_upper,
    student_width,
)
from gimbal.ops.seeds import philox

REPETITIONS = 20_000
DELTA = 0.1


@pytest.mark.parametrize(
    ("p", "freedom", "expected"),
    [
        (0.95, 1, 6.313751515),
        (0.9, 2, 1.885618083),
        (0.975, 4, 2.776445105),
        (0.9, 9, 1.383028738),
        (0.95, 30, 1.697260887),
        (0.99, 120, 2.357824614),
        (0.9, 120, 1.288646),
        (0.5, 7, 0.0),
        (0.05, 30, -1.697260887),
    ],
)
def test_quantiles_of_t_are_those_of_the_tables(p, freedom, expected):
    assert student_quantile(p, freedom) == pytest.approx(expected, abs=2e-6)


def test_the_incomplete_beta_function_in_closed_forms_and_for_many_degrees():
    for x in (0.0, 0.1, 0.5, 0.93, 1.0):
        assert incomplete_beta(x, 1.0, 1.0) == pytest.approx(x)
        assert incomplete_beta(x, 3.0, 1.0) == pytest.approx(x**3)
        assert incomplete_beta(x, 1.0, 4.0) == pytest.approx(1 - (1 - x) ** 4)
        assert incomplete_beta(x, 0.5, 0.5) == pytest.approx(2 / math.pi * math.asin(x**0.5))
    assert incomplete_beta(0.5, 5e4, 5e4) == pytest.approx(0.5)
    # P(at least 3 of 10) at p = 0.2, summed.
    summed = sum(math.comb(10, k) * 0.2**k * 0.8 ** (10 - k) for k in range(3, 11))
    assert incomplete_beta(0.2, 3.0, 8.0) == pytest.approx(summed)


def test_t_tends_to_the_normal():
    normal = float(torch.special.ndtri(torch.tensor(0.9, dtype=torch.float64)))
    assert student_quantile(0.9, 10**7) == pytest.approx(normal, abs=1e-6)
    assert student_quantile(0.9, 1023) == pytest.approx(normal + (normal**3 + normal) / 4 / 1023, abs=1e-5)


def test_bounds_by_hand():
    values = [0.0, 1.0, 2.0, 1.0, 1.0]
    std = 0.5**0.5
    assert student_upper(1.0, std, 5, 0.025) == pytest.approx(1 + 2.776445105 * std / 5**0.5)
    assert student_upper(1.0, std, len(values), 0.5) == pytest.approx(1.0)
    assert student_upper(1.0, 0.0, 1, DELTA) == math.inf == student_width(1, DELTA)
    assert hoeffding_upper(0.2, 50, 0.1) == pytest.approx(0.2 + (math.log(10) / 100) ** 0.5)
    assert hoeffding_upper(0.2, 50, 0.1, low=-1.0, high=3.0) == pytest.approx(0.2 + 4 * (math.log(10) / 100) ** 0.5)
    assert binomial_upper(0, 50, 0.1) == pytest.approx(1 - 0.1**0.02)
    assert binomial_upper(50, 50, 0.1) == 1.0
    assert binomial_upper(3, 10, 0.05) == pytest.approx(0.6066242)


def test_the_binomial_bound_is_where_so_few_hits_have_probability_delta():
    p = binomial_upper(4, 30, DELTA)
    assert sum(math.comb(30, k) * p**k * (1 - p) ** (30 - k) for k in range(5)) == pytest.approx(DELTA)


def missed(bound_R, truth):
    """The share of samples whose bound lies below the truth, and what chance allows above delta."""
    return float(np.mean(bound_R < truth)), 4 * math.sqrt(DELTA * (1 - DELTA) / REPETITIONS)


@pytest.mark.parametrize("n", [2, 5, 40])
def test_students_bound_misses_the_mean_of_normal_values_in_a_share_of_delta(n):
    sample_RN = philox("coverage", n).normal(3.0, 2.0, (REPETITIONS, n))
    bound_R = sample_RN.mean(1) + sample_RN.std(1, ddof=1) * student_width(n, DELTA)
    share, chance = missed(bound_R, 3.0)
    assert abs(share - DELTA) < chance


@pytest.mark.parametrize(("n", "p"), [(1, 0.05), (1, 0.97), (20, 0.1), (20, 0.5), (90, 0.02), (90, 0.1), (90, 0.97)])
def test_bounds_of_bounded_values_never_miss_more_often_than_delta(n, p):
    hits_R = philox("bernoulli", n, p).binomial(n, p, REPETITIONS)
    exact_K = np.zeros(n + 1)
    for hits in np.unique(hits_R):
        exact_K[hits] = binomial_upper(int(hits), n, DELTA)
    wide_R = hits_R / n + hoeffding_upper(0.0, n, DELTA)
    for bound_R in (exact_K[hits_R], wide_R):
        share, chance = missed(bound_R, p)
        assert share <= DELTA + chance
    assert (exact_K[hits_R] <= wide_R + 1e-9).all()  # and the exact one is never the wider


def test_students_bound_does_miss_rare_events():
    """Of events of probability 0.02, 50 draws often hold none; then the bound is 0. So rare costs ask for another bound."""
    hits_R = philox("rare").binomial(50, 0.02, REPETITIONS)
    mean_R = hits_R / 50
    bound_R = mean_R + np.sqrt(mean_R * (1 - mean_R) * 50 / 49) * student_width(50, DELTA)
    assert missed(bound_R, 0.02)[0] > 3 * DELTA


def test_no_such_quantile():
    with pytest.raises(ValueError, match="degrees of freedom"):
        student_quantile(0.9, 0)
