"""The cart whose speed is hidden: how it moves, and that a history of two frames tells all there is to know."""

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gimbal.environments.gym import Environment
from gimbal.environments.hidden_cart import HiddenCart

NAME = "gimbal.environments.hidden_cart:HiddenCart"


def test_a_cart_is_pushed_and_stopped_by_a_wall():
    world = HiddenCart()
    world.reset(options={"begin": (0.5, 1.0)})
    reward = world.step(np.array([1.0]))[1]
    assert (world.place, world.speed) == (pytest.approx(0.74), pytest.approx(1.2))
    assert reward == pytest.approx(-(0.74**2 + 0.1 * 1.2**2))
    world.reset(options={"begin": (-1.9, -2.0)})
    world.step(np.array([-9.0]))  # a force beyond 1 is cut to it, a speed beyond 2 too
    assert (world.place, world.speed) == (-2.0, -2.0)


def test_what_is_shown_is_the_last_places_and_the_forces_between_them():
    world = Environment(f"{NAME}@frames=3")._env
    seen, _ = world.reset(options={"begin": (1.0, 0.0)})
    assert seen.tolist() == [0, 0, 1.0, 0, 0]
    for force in (0.5, -0.25, 1.0):
        seen, *_ = world.step(np.array([force]))
    np.testing.assert_allclose(seen, [*world.places[-3:], -0.25, 1.0], rtol=1e-6)
    assert len(world.places) == 4 and len(set(world.places)) == 4


def test_two_frames_tell_the_speed_and_one_does_not():
    world = HiddenCart()
    world.frames = 2
    world.reset(seed=1)
    for force in (1.0, -0.5):
        before, last, _ = world.step(np.array([force]))[0]
        assert (last - before) / 0.2 == pytest.approx(world.speed, abs=1e-5)
    world.frames = 1
    shown = []
    for speed in (1.0, -1.0):
        shown.append(world.reset(options={"begin": (0.5, speed)})[0].tolist())
    assert shown[0] == shown[1] == [0.5]


def test_it_is_cut_off_and_frames_are_counted_from_1():
    world = HiddenCart()
    world.reset(seed=0)
    ends = [world.step(np.zeros(1))[2:4] for _ in range(40)]
    assert ends == [(False, False)] * 39 + [(False, True)]
    with pytest.raises(ValueError, match="frames 0; it shows at least 1 place"):
        Environment(f"{NAME}@frames=0")
