"""The point that walks home past a risk: its odds, its ends, and what the way around is worth."""

import numpy as np
import pytest

from gimbal.environments.risky_point import MIDDLE, RADIUS, RiskyPoint


def test_it_starts_beyond_the_disc_and_by_its_seed():
    world = RiskyPoint()
    starts = [world.reset(seed=seed)[0] for seed in range(200)]
    assert all(
        np.linalg.norm(place - MIDDLE) >= RADIUS and (place >= 0.3).all() and (place <= 1).all() for place in starts
    )
    assert np.array_equal(world.reset(seed=3)[0], starts[3])


def test_accidents_come_as_often_as_they_are_said_to():
    """From places where a still point stays, but for the shaking: in the middle, at .15 from it, and just outside."""
    world = RiskyPoint()
    for away, odds in ((0.0, 0.1), (0.15, 0.1 * np.exp(-1)), (0.32, 0.0)):
        world.reset(seed=1)
        struck = 0
        for _ in range(5_000):
            world.place, world.steps = MIDDLE + np.array([away, 0.0]), 0
            _, reward, _, _, info = world.step(np.zeros(2))
            struck += reward < -5
            assert info["cost"] == (away < 0.3)
        assert struck / 5_000 == pytest.approx(odds, abs=0.012)


def test_rewards_and_ends():
    world = RiskyPoint()
    world.reset(seed=0, options={"begin": (0.13, 0.0)})
    place, reward, home, cut, info = world.step(np.array([-5.0, 0.0]))  # clipped to -1
    assert place == pytest.approx([0.03, 0.0], abs=0.003) and home and not cut and info == {"cost": 0.0}
    assert reward == pytest.approx(-0.1 - np.linalg.norm(place), abs=1e-6)
    world.reset(seed=0, options={"begin": (1.0, -1.0)})
    ends = [world.step(np.zeros(2))[2:4] for _ in range(100)]
    assert ends[-1] == (False, True) and not any(any(end) for end in ends[:-1])
