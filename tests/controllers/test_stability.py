"""The closed loop's rule against a plant that answers it: steps whose distance is d times the square of the learning rate."""

import math

import pytest

from gimbal.controllers import Region, Stability

RULE = Stability(region=Region(kl=0.01))


def settle(rule, unit, signal=1.0, age=0.0, steps=30):
    """``unit``: the distance of a step at factor 1. Returns the factor and the distances as they were left."""
    state, left = rule.init(), []
    for _ in range(steps):
        target = rule.target(signal, age)
        distance = unit * state["factor"] ** 2
        left.append(distance * rule.back(distance, target) ** 2)
        state = rule.update(state, distance, target)
    return state["factor"], left


@pytest.mark.parametrize("unit", [1e-5, 1e-3, 1.0, 50.0])
def test_the_distance_comes_to_its_target_from_any_learning_rate(unit):
    factor, left = settle(RULE, unit)
    assert unit * factor**2 == pytest.approx(0.01, rel=2 * math.log(RULE.band))
    assert max(left) <= 0.04  # of no step, the first one included, did more remain


def test_the_target_falls_with_age_and_with_the_share_of_decisions_that_teach():
    assert RULE.target(1.0, 0.0) == 0.01
    for signal, age in ((0.25, 0.0), (1.0, 15.0)):
        factor, _ = settle(RULE, 1.0, signal=signal, age=age)
        assert factor**2 == pytest.approx(RULE.target(signal, age), rel=0.2)
    assert RULE.target(0.25, 0.0) == pytest.approx(0.0025) and RULE.target(1.0, 15.0) < 0.01


def test_the_factor_keeps_its_bounds_and_its_pace():
    state = RULE.init()
    for distance, pace in ((1e6, 1 / RULE.down), (1e-9, RULE.up)):
        after = RULE.update(RULE.init(), distance, 0.01)
        assert after["factor"] == pytest.approx(pace)
    for _ in range(40):
        state = RULE.update(state, 1e-11, 0.01)
    assert state["factor"] == RULE.widest


def test_a_step_without_signal_changes_nothing_and_one_without_a_distance_lowers_the_rate():
    state = {"factor": 0.5, "whole": -3.0}
    assert RULE.update(state, 0.0, 0.01) == state and RULE.update(state, 0.01, 0.0) == state
    assert RULE.update(state, math.nan, 0.01) == {"factor": 0.5 / RULE.down}
    assert RULE.back(math.nan, 0.01) == 0.0


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: Region(kl=0.0), "kl 0.0"),
        (lambda: Stability(up=0.5), "up is 0.5"),
        (lambda: Stability(keep=1.0), "keep"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(made, says):
    with pytest.raises(ValueError, match=says):
        made()
