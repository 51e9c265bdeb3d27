"""The search for the largest rate that a run survives, and the fit of its fall."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import curve


@pytest.mark.parametrize("boundary", range(curve.LEAST - 1, curve.MOST + 1))
def test_the_search_ends_at_the_largest_rate_that_survives(boundary):
    survived, tried = {}, 0
    while (n := curve.following(survived)) is not None:
        assert n not in survived, "no rate is tried twice"
        survived[n], tried = n <= boundary, tried + 1
    found = curve.largest(survived)
    assert found == (None if boundary < curve.LEAST else boundary) and tried <= 9


def test_a_lucky_run_above_one_that_collapsed_is_not_the_result():
    assert curve.largest({8: True, 10: False, 12: True}) == 8


@pytest.mark.parametrize("law", [-1.0, 0.0, -0.5])
def test_the_slope_is_that_of_the_law_where_the_points_are_on_it(law):
    slope, half = curve.slope([(age, 3e-4 * (1 + age) ** law) for age in curve.AGES])
    assert math.isclose(slope, law, abs_tol=1e-9) and half < 1e-6


def test_the_interval_of_the_slope_is_that_of_least_squares():
    """Pairs above and below a flat line by as much at both ends: the residual variance is 1, and that of the slope 1 / 16."""
    slope, half = curve.slope([(0, 2.0), (0, 0.5), (3, 1.0), (3, 1.0), (15, 2.0), (15, 0.5)])
    assert abs(slope) < 1e-9 and math.isclose(half, 2.776 / 4, rel_tol=1e-3)
