"""An environment that shows the last action, and when a decision is due."""

import inspect
import math
import re

import gymnasium
import numpy as np
import pytest

from gimbal.environments.bounded_cart import BoundedCart, held_cart
from gimbal.environments.gym import Environment
from gimbal.environments.held import Held, holds
from gimbal.records import Task

CART = "gimbal.environments.bounded_cart:held_cart"


def test_it_shows_the_last_action_and_how_long_ago_the_decision_was():
    world, plain = Held(BoundedCart(), every=3), BoundedCart()
    begun, plainly = world.reset(seed=4)[0], plain.reset(seed=4)[0]
    np.testing.assert_array_equal(begun, [*plainly, 0, 0])
    for step in range(1, 8):
        action = np.array([0.1 * step], np.float32)
        seen, reward, *ends, info = world.step(action)
        plainly, *others = plain.step(action)
        assert (reward, *ends, info) == tuple(others)
        np.testing.assert_allclose(seen, [*plainly, 0.1 * step, step % 3 / 3], rtol=1e-6)
        assert (seen[-1] == 0) == (step % 3 == 0)
    assert world.observation_space.contains(seen)
    np.testing.assert_array_equal(world.reset(seed=4)[0], begun)


def test_every_1_a_decision_is_due_at_each_step():
    world = Held(BoundedCart(), every=1)
    world.reset(seed=0)
    assert [world.step(np.ones(1))[0][-1] for _ in range(4)] == [0] * 4


def test_the_environment_inside_is_set_by_the_name():
    world = Environment(f"{CART}@gust=0.5,fragile=1")
    assert world.interface == "4 observations, 1 real actions" and holds(f"{CART}@gust=1")
    first = world.reset(Task(id="0", source=CART, seed=3), 0)
    after = [world.step(np.zeros(1)).observation[1] for _ in range(40)]
    assert first[1] != after[-1], "blows move it"
    assert not holds("Pendulum-v1")


@pytest.mark.parametrize(
    ("env", "every", "said"),
    [
        (BoundedCart(), 0, "Held.every is 0; it is how many steps a decision holds, a whole number of at least 1"),
        (gymnasium.make("CartPole-v1"), 2, "takes Discrete"),
    ],
)
def test_wrong_settings_are_refused(env, every, said):
    with pytest.raises(ValueError, match=said):
        Held(env, every)


@pytest.mark.parametrize("every", [2.5, 3.0, math.inf, math.nan, True, "10", None])
def test_what_is_no_whole_number_of_steps_is_refused(every):
    init = inspect.unwrap(Held.__init__)  # as users have it: tests check types before
    with pytest.raises(ValueError, match=re.escape(f"Held.every is {every!r}; it")):
        init(object.__new__(Held), BoundedCart(), every)
    assert Held(BoundedCart(), 3).every == 3


def test_a_fragile_cart_ends_where_it_is_too_far_out():
    world = BoundedCart()
    world.reset(options={"begin": (0.95, 1.0)})
    assert world.step(np.zeros(1))[2] is False
    world.fragile = 1
    world.reset(options={"begin": (0.95, 1.0)})
    assert world.step(np.zeros(1))[2] is True


def test_blows_last_five_steps_and_none_are_drawn_without_them():
    def speeds(gust):
        world = held_cart()
        world.unwrapped.gust = gust
        world.reset(seed=1, options={"begin": (0.0, 0.0)})
        speed_S = np.array([0.0] + [world.step(np.zeros(1))[0][1] for _ in range(60)])
        return np.diff(speed_S).reshape(-1, 5), world.np_random.random()

    (still, drawn), (blown, other) = speeds(0.0), speeds(0.2)
    np.testing.assert_allclose(blown, blown[:, :1].repeat(5, 1), atol=1e-6)
    assert {round(float(x), 4) for x in blown[:, 0]} == {-0.02, 0.0, 0.02} and not still.any()
    fresh = BoundedCart()
    fresh.reset(seed=1, options={"begin": (0.0, 0.0)})
    assert drawn == fresh.np_random.random() != other
