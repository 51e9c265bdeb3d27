"""Controllers against a plant that answers them: they settle where they should, and in no other place."""

import pytest

from gimbal.controllers import AdaptiveKL, Lagrangian


def settle(rule, plant, steps=300):
    """The plant maps a coefficient to the signal of the next step; returns the last (coefficient, signal)."""
    state = rule.init()
    for _ in range(steps):
        signal = plant(state["value"])
        state = rule.update(state, {rule.signal: signal})
    return state["value"], signal


def test_lagrangian_holds_the_signal_at_its_limit():
    value, signal = settle(Lagrangian(limit=0.004, rate=5.0), lambda strength: 0.01 / (1 + 10 * strength))
    assert signal == pytest.approx(0.004, rel=1e-3) and value == pytest.approx(0.15, rel=1e-3)


def test_lagrangian_lets_go_where_the_limit_is_kept_anyway():
    value, _ = settle(Lagrangian(limit=0.02, rate=5.0), lambda strength: 0.01 / (1 + 10 * strength))
    assert value == 0.0


def test_lagrangian_stops_at_high_where_the_limit_cannot_be_kept():
    value, _ = settle(Lagrangian(limit=0.001, rate=5.0, high=0.7), lambda strength: 0.01)
    assert value == 0.7


def test_adaptive_kl_holds_the_kl_at_its_target():
    for initial in (0.001, 0.5):
        value, kl = settle(AdaptiveKL(target=0.05, initial=initial, gain=0.5), lambda coef: 0.01 / (coef + 0.1))
        assert kl == pytest.approx(0.05, rel=1e-3) and value == pytest.approx(0.1, rel=1e-2)


def test_adaptive_kl_moves_by_no_more_than_gain_times_a_fifth():
    rule = AdaptiveKL(gain=0.5, initial=0.1)
    assert rule.update(rule.init(), {rule.signal: 1e9})["value"] == pytest.approx(0.1 * 1.1)
    assert rule.update(rule.init(), {rule.signal: 0.0})["value"] == pytest.approx(0.1 * 0.9)
