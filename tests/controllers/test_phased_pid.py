"""The threshold of SAFE: the PID rule and the phases, each by hand and one at a time."""

import json

import pytest

from gimbal.controllers.phased_pid import PhasedPID

ALIKE = {"warmup": 1.0, "climbing": 1.0, "plateau": 1.0, "converged": 1.0}
STILL = {"proportional": 0.0, "integral": 0.0, "derivative": 0.0}


def walk(rule, rewards, through_json=False):
    state, values = rule.init(), []
    for reward in rewards:
        state = rule.update(json.loads(json.dumps(state)) if through_json else state, {"reward/mean": float(reward)})
        values.append(state["value"])
    return values


def test_the_pid_rule_by_hand():
    # m: 0.5, then 0.5 + 0.05 x 0.4 = 0.52, then 0.519; e: 0.019, then -0.002.
    values = walk(PhasedPID(**ALIKE), [0.5, 0.9, 0.5])
    second = 0.3 + 0.3 * 0.019 + 0.01 * 0.019 + 0.05 * 0.019
    third = 0.3 - 0.3 * 0.002 + 0.01 * 0.017 - 0.05 * 0.021
    assert values == pytest.approx([0.3, second, third])


def test_the_phases():
    rule = PhasedPID(window=3, **STILL)
    assert walk(rule, [0.1, 0.1]) == pytest.approx([0.45] * 2)  # warm-up
    assert walk(rule, [0.1] * 3 + [0.5] * 3)[-1] == pytest.approx(0.36)  # climbing
    assert walk(rule, [0.5] * 9)[-1] == pytest.approx(0.24)  # a plateau: far from solved
    assert walk(rule, [0.9] * 9)[-1] == pytest.approx(0.3)  # converged
    assert walk(rule, [0.9, 0.7] * 6)[-1] == pytest.approx(0.24)  # not calm
    assert walk(rule, [0.9] * 3)[-1] == pytest.approx(0.3)  # nothing before to compare with


def test_the_windows_slide():
    """Two windows of two: 0 0 | 0 1 climbs, 0 1 | 1 1 climbs, 1 1 | 1 1 does not."""
    rule = PhasedPID(window=2, **STILL)
    assert walk(rule, [0.0, 0, 0, 1, 1, 1])[3:] == pytest.approx([0.36, 0.36, 0.36])
    assert walk(rule, [0.0, 0, 0, 1, 1, 1, 1])[-1] == pytest.approx(0.3)


def test_without_gains_it_is_the_base_times_the_phase_and_without_phases_the_pid_rule():
    assert walk(PhasedPID(**STILL, **ALIKE), [0.1, 0.9, 0.3, 1.0]) == pytest.approx([0.3] * 4)
    assert PhasedPID().init()["value"] == pytest.approx(0.45)


def test_equal_bounds_are_a_constant():
    assert walk(PhasedPID(low=0.2, high=0.2), [0.0, 1.0, 5.0]) == [0.2] * 3


def test_it_stays_bounded_survives_json_and_keeps_no_more_than_it_needs():
    rule, rewards = PhasedPID(window=2), [0.0, 1e9, -1e9, 0.3, 0.3, 0.3, 0.3]
    assert walk(rule, rewards) == walk(rule, rewards, through_json=True)
    assert all(0.1 <= value <= 0.6 for value in walk(rule, rewards))
    state = rule.init()
    for reward in rewards:
        state = rule.update(state, {"reward/mean": reward})
    assert sum(key.startswith("reward/") for key in state) == 4
    with pytest.raises(KeyError, match="reward/mean"):
        rule.update(state, {})


def test_a_faster_rise_widens_it():
    slow, fast = (walk(PhasedPID(), [0.5, reward])[-1] for reward in (0.5, 0.9))
    assert fast > slow


def test_senseless_numbers_are_refused():
    with pytest.raises(ValueError, match="low at most high"):
        PhasedPID(window=0)
