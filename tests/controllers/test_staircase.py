import pytest

from gimbal.controllers.staircase import Staircase


def walk(controller, steps):
    state, values = controller.init(), []
    for _ in range(steps):
        state = controller.update(state, {})
        values.append(state["value"])
    return values


def test_constant_then_down_by_stairs_to_the_floor():
    values = walk(Staircase(drop=0.2, begin=3, every=2, low=0.5), 10)
    assert values == pytest.approx([1, 1, 1, 0.8, 0.8, 0.6, 0.6, 0.5, 0.5, 0.5])


def test_a_drop_of_0_is_a_constant():
    assert walk(Staircase(drop=0.0, begin=0, every=1), 5) == [1.0] * 5


def test_stairs_of_one_step_are_a_linear_decay():
    assert walk(Staircase(drop=0.1, begin=0, every=1, low=0.0), 12) == pytest.approx(
        [max(1 - 0.1 * t, 0) for t in range(1, 13)]
    )


def test_what_goes_up_is_refused():
    with pytest.raises(ValueError, match="low at most initial"):
        Staircase(initial=0.2)
