"""The point among marshes: who steps into one stays, and who walks around comes home."""

import numpy as np
import pytest

from gimbal.environments.sticky_point import HOME, MARSHES, RADIUS, STRIDE, StickyPoint


def test_it_starts_outside_of_all_marshes_and_by_its_seed():
    world = StickyPoint()
    starts = [world.reset(seed=seed)[0] for seed in range(300)]
    assert all((np.abs(place - [0.6, 1.1]) <= 0.3).all() and not world_at(place).stuck for place in starts)
    assert np.array_equal(world.reset(seed=3)[0], starts[3])


def world_at(place):
    world = StickyPoint()
    world.reset(seed=0, options={"begin": place})
    return world


@pytest.mark.parametrize("marsh", MARSHES)
def test_who_ends_a_step_in_a_marsh_stays_to_the_end(marsh):
    world = world_at((marsh[0], marsh[1] + RADIUS + STRIDE / 2))
    place, reward, home, cut, info = world.step(np.array([0.0, -1.0]))
    assert world.stuck and not home and not cut and info == {"is_success": False}
    assert reward == pytest.approx(-np.linalg.norm(place) - 0.1, abs=1e-6)
    ends = []
    for action in np.random.default_rng(0).uniform(-1, 1, (99, 2)):
        there, _, *end, _ = world.step(action)
        assert np.array_equal(there, place)
        ends.append(end)
    assert ends[-1] == [False, True] and not any(any(end) for end in ends[:-1])


def test_a_way_leads_home_between_the_marshes():
    world = world_at((0.6, 1.1))
    for corner in ((0.4, 0.6), (0.15, 0.42), (0.0, 0.0)):
        while np.linalg.norm(world.place - corner) > STRIDE and np.linalg.norm(world.place) >= HOME:
            way = np.array(corner) - world.place
            _, _, home, cut, info = world.step(way / np.abs(way).max())
    assert home and not cut and info == {"is_success": True} and not world.stuck and world.steps < 20
