"""NewExtremes: it moves at new highs and lows of the last values alone."""

import pytest

from gimbal.controllers import NewExtremes


def driven(rule, signals):
    state, values = rule.init(), []
    for signal in signals:
        state = rule.update(state, {rule.signal: float(signal)})
        values.append(state["value"])
    return values


def test_it_grows_at_a_new_high_and_shrinks_at_a_new_low():
    values = driven(NewExtremes(), [0.5, 0.6, 0.55, 0.6, 0.4])
    assert values == pytest.approx([0.1, 0.11, 0.11, 0.11, 0.099]), "the first has no rival, and a tie is no new high"


def test_what_is_older_than_the_window_is_forgotten():
    assert driven(NewExtremes(window=2), [0.9, 0.2, 0.3, 0.4])[-1] == pytest.approx(0.1 * 0.9 * 1.1)


def test_it_keeps_to_its_bounds_and_with_factors_of_1_it_is_constant():
    assert driven(NewExtremes(), range(50))[-1] == 0.2 and driven(NewExtremes(), range(50, 0, -1))[-1] == 0.02
    assert set(driven(NewExtremes(up=1.0, down=1.0), [3, 1, 4, 1, 5])) == {0.1}


@pytest.mark.parametrize("fields", [{"window": 0}, {"up": 0.9}, {"down": 0.0}, {"initial": 0.5}])
def test_constants_that_make_no_rule_are_refused(fields):
    with pytest.raises(ValueError, match="NewExtremes"):
        NewExtremes(**fields)
