"""A coefficient that waits for a signal: when it opens, how it moves then, limiting cases, what is refused."""

import math

import pytest

from gimbal.controllers.linear import Linear
from gimbal.controllers.ready import Ready


def values(rule, signals):
    state, found = rule.init(), []
    for signal in signals:
        found.append(state["value"])
        state = rule.update(state, {"value/explained": signal})
    return [*found, state["value"]]


def test_it_opens_after_so_many_checks_of_the_average_on_end_and_stays_open():
    rule = Ready(bar=0.6, checks=2, keep=0.5, steps=4)
    # averages: .4, .7, .45 (the count begins anew), .725, .8625 (opens), then whatever comes
    signals = (0.4, 1.0, 0.2, 1.0, 1.0, -5.0, -5.0, -5.0, -5.0)
    assert values(rule, signals) == [0, 0, 0, 0, 0, 0.25, 0.5, 0.75, 1, 1]


def test_a_coefficient_that_fades_goes_the_other_way():
    rule = Ready(checks=1, keep=0.0, closed=1.0, opened=0.1, steps=2)
    assert values(rule, (0.5, 0.7, 0.0, 0.0)) == pytest.approx([1, 1, 0.55, 0.1, 0.1])


def test_the_first_average_is_the_first_signal():
    assert values(Ready(checks=1, keep=0.99, steps=0), (0.6,)) == [0, 1]


def test_a_bar_of_minus_infinity_is_linear():
    rule = Ready(bar=-math.inf, checks=1, steps=5, closed=0.5, opened=2.0)
    other, signals = Linear(initial=0.5, final=2.0, steps=5), (0.0,) * 8
    assert values(rule, signals) == pytest.approx(values(other, signals))


def test_without_steps_it_is_opened_at_once():
    assert values(Ready(checks=2, keep=0.0, steps=0), (0.9, 0.9, 0.0)) == [0, 0, 1, 1]


def test_a_signal_that_never_reaches_the_bar_leaves_it_closed():
    assert set(values(Ready(closed=0.3), (0.59,) * 50)) == {0.3}


def test_two_with_the_same_gate_open_at_the_same_step():
    signals = [0.1 * n for n in range(20)]
    one, other = (values(Ready(closed=a, opened=b), signals) for a, b in ((0.0, 1.0), (1.0, 0.1)))
    assert [x > 0 for x in one] == [x < 1 for x in other] and any(x > 0 for x in one)


def test_settings_without_meaning_are_refused():
    for wrong in ({"checks": 0}, {"keep": 1.0}, {"keep": -0.1}, {"steps": -1}):
        with pytest.raises(ValueError, match="Ready has checks"):
            Ready(**wrong)
