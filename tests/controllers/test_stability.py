"""The closed loop's rule against a plant that answers it: steps whose distance is d times the square of the learning rate."""

import math
from dataclasses import replace

import pytest

from gimbal.controllers import Region, Stability

RULE = Stability(region=Region(kl=0.01))


def settle(rule, unit, surprise=1.0, apart=0.0, steps=40):
    """``unit``: the distance of a step at factor 1. Returns the factor and the distances as they were left."""
    state, left = rule.init(), []
    for _ in range(steps):
        state = rule.seen(state, surprise)
        target = rule.target(state, apart)
        distance = unit * state["factor"] ** 2
        left.append(distance * rule.back(distance, target) ** 2)
        state = rule.update(state, distance, target)
    return state["factor"], left


@pytest.mark.parametrize("unit", [1e-5, 1e-3, 1.0, 50.0])
def test_the_distance_comes_to_its_target_from_any_learning_rate(unit):
    factor, left = settle(RULE, unit)
    assert unit * factor**2 == pytest.approx(0.01, rel=2 * math.log(RULE.band))
    assert max(left) <= 0.04  # of no step, the first one included, did more remain


@pytest.mark.parametrize(
    ("rule", "surprise", "apart", "target"),
    [
        (RULE, 0.03, 0.0, 0.001),
        (RULE, math.inf, 0.0, 0.01),
        (RULE, 1.0, 0.04, 0.0025),  # a quarter of the distance that it may have: half the rate
        (RULE, 0.15, 0.02, 0.00125),  # the same of a policy that is nearly certain
        (RULE, 1.0, 10.0, 0.01 / 400),  # never less than a twentieth of the rate
        (replace(RULE, region=replace(RULE.region, discrepancy=math.inf)), 1.0, 10.0, 0.01),
    ],
)
def test_the_target_falls_with_certainty_and_with_distance_from_the_data(rule, surprise, apart, target):
    assert rule.target(rule.seen(rule.init(), surprise), apart) == pytest.approx(target)
    factor, _ = settle(rule, 0.1, surprise=surprise, apart=apart)
    assert 0.1 * factor**2 == pytest.approx(target, rel=0.2)


def test_the_distance_from_delayed_data_stays_in_the_region():
    """Steps all go the same way, so the distance is the square of the way since the data was drawn; the target follows from it."""
    for age in (0, 1, 4, 16):
        ways = [0.0] * (age + 1)  # of the policy at each version, the last ones
        apart, targets = [], []
        for _ in range(200):
            apart.append((ways[-1] - ways[0]) ** 2)
            targets.append(RULE.target(RULE.init(), apart[-1]))
            ways = [*ways[1:], ways[-1] + math.sqrt(targets[-1])]
        assert max(apart) < 1.1 * RULE.region.discrepancy  # on the way; the least rate goes on
        h = math.sqrt(RULE.region.discrepancy / RULE.region.kl)
        assert targets[-1] == pytest.approx(RULE.region.kl / (1 + age / h) ** 2, rel=0.1)


def test_without_a_bound_nothing_is_taken_back_whatever_the_target():
    free = replace(RULE, region=replace(RULE.region, times=math.inf))
    assert [free.back(distance, target) for distance in (0.0, 1e9) for target in (0.0, 0.01)] == [1.0] * 4
    assert RULE.back(0.0, 0.0) == 1.0 and RULE.back(1.0, 0.0) == 0.0


def test_where_nothing_counts_nothing_is_learned_of_certainty():
    state = RULE.seen(RULE.init(), math.nan)
    assert state == RULE.init() and RULE.target(state, 0.0) == 0.01


def test_the_factor_keeps_its_bounds_and_its_pace():
    state = RULE.init()
    for distance, pace in ((1e6, 1 / RULE.down), (1e-9, RULE.up)):
        after = RULE.update(RULE.init(), distance, 0.01)
        assert after["factor"] == pytest.approx(pace)
    for _ in range(40):
        state = RULE.update(state, 1e-11, 0.01)
    assert state["factor"] == RULE.widest


def test_a_step_without_a_distance_lowers_the_rate_and_forgets_what_was_followed():
    state = {"factor": 0.5, "whole": 3.0, "surprise": 0.1}
    assert RULE.update(state, math.nan, 0.01) == {"factor": 0.5 / RULE.down, "surprise": 0.1}
    assert RULE.back(math.nan, 0.01) == 0.0
    assert RULE.update(state, 0.01, 0.0) == state


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: Region(kl=0.0), "Region.kl is 0.0; it must be a distance above 0 and at most 5 nats"),
        (lambda: Region(kl=math.inf), "Region.kl is inf"),
        (lambda: Region(kl=5.1), "beyond which no step is taken back"),
        (lambda: Region(kl=20.1, times=math.inf), "at most 20 nats"),
        (lambda: Region(times=1.0), "Region.times is 1.0"),
        (lambda: Region(calm=math.inf), "Region.calm is inf"),
        (lambda: Stability(up=0.5), "up is 0.5"),
        (lambda: Stability(keep=1.0), "keep"),
        (lambda: Region(discrepancy=0.0), "discrepancy is 0.0; it must be a distance above 0"),
        (lambda: Region(discrepancy=math.nan), "discrepancy is nan"),
        (lambda: Stability(widest=math.inf), "widest is inf"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(made, says):
    with pytest.raises(ValueError, match=says):
        made()


def test_the_most_that_a_step_may_go_is_what_a_distance_can_say():
    region = Region(kl=5.0)
    assert Stability(region=region).back(20.0 * 1.001, region.kl) < 1


def test_one_outlier_does_not_hold_the_rate_down_for_long():
    state = RULE.init()
    factors = []
    for step in range(40):
        state = RULE.update(state, 1e7 if step == 5 else 0.01 * state["factor"] ** 2, 0.01)
        factors.append(state["factor"])
    assert factors[4] == 1.0 and factors[5] == 0.25
    assert (
        sum(factor < 0.5 for factor in factors) <= 20 and factors[-1] > 0.9
    )  # 53 of them as long as all of it counted
    assert RULE.update(RULE.init(), 9.9, 0.01)["whole"] == 9.9  # below 1000 times the target it is what it is


def test_a_schedule_stays_one():
    state, rates = RULE.init(), []
    for step in range(40):  # linear decay
        schedule = 1 - step / 40
        rates.append(state["factor"] * schedule)
        state = RULE.update(state, 1.0 * rates[-1] ** 2, 0.01, schedule)
    assert state["factor"] == pytest.approx(0.1, rel=2 * math.log(RULE.band))
    for step in (10, 20, 39):
        assert rates[step] == pytest.approx(state["factor"] * (1 - step / 40))
    assert RULE.update(state, 1e-3, 0.01, 0.0) == state  # a step at a rate of 0 says nothing
