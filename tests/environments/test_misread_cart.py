"""The cart that is misread: gymnasium's where nothing is, and what an error in what is told changes."""

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gimbal.environments.gym import Environment
from gimbal.environments.misread_cart import MisreadCart

NAME = "gimbal.environments.misread_cart:MisreadCart"


def played(world, actions=(0, 1) * 12):
    first, _ = world.reset(seed=3)
    steps = [world.step(action) for action in actions]
    return np.array([first, *(step[0] for step in steps)]), [step[1:4] for step in steps]


def test_read_as_it_is_it_is_gymnasiums_cart():
    seen, rest = played(MisreadCart())
    theirs, their_rest = played(gymnasium.make("CartPole-v1").unwrapped)
    np.testing.assert_array_equal(seen, theirs)
    assert rest == their_rest


def test_what_is_told_is_off_and_the_cart_moves_as_it_did():
    world = MisreadCart()
    world.place, world.speed, world.angle, world.turn = 1.5, 2.0, -0.1, 0.5
    seen, rest = played(world)
    honest, honest_rest = played(MisreadCart())
    np.testing.assert_allclose(seen - honest, np.tile([1.5, 2.0, -0.1, 0.5], (len(seen), 1)), atol=1e-6)
    assert rest == honest_rest


def test_noise_is_new_in_each_step_within_its_bounds_and_of_the_seed():
    world = MisreadCart()
    world.noise = 0.5
    seen, again = played(world)[0], played(world)[0]
    np.testing.assert_array_equal(seen, again)
    off = seen - played(MisreadCart())[0]
    assert np.abs(off[:, 0]).max() <= 0.5 and np.abs(off[:, 2]).max() <= 0.05 and len(np.unique(off[:, 0])) == len(off)
    assert np.abs(off).max(0) == pytest.approx([0.5, 0.5, 0.05, 0.5], rel=0.2)


def test_attributes_are_set_by_the_name_and_an_episode_is_cut_off():
    world = Environment(f"{NAME}@place=1,angle=0.05")
    assert world._env.unwrapped.place == 1.0
    cart = MisreadCart()
    cart.longest = 5
    assert [(ended, cut) for _, ended, cut in played(cart, (0, 1) * 3)[1]][3:] == [
        (False, False),
        (False, True),
        (False, True),
    ]
