"""The pendulum that tells its mass: gymnasium's of that mass, and the mass beside what is observed."""

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gimbal.environments.gym import Environment, Gymnasium
from gimbal.environments.told_pendulum import ToldPendulum

NAME = "gimbal.environments.told_pendulum:ToldPendulum"


@pytest.mark.parametrize("mass", [0.5, 1.0, 2.0])
def test_without_the_last_number_it_is_the_pendulum_of_that_mass(mass):
    theirs, own = gymnasium.make("Pendulum-v1").unwrapped, ToldPendulum()
    theirs.m = own.m = mass
    first, mine = theirs.reset(seed=5)[0], own.reset(seed=5)[0]
    np.testing.assert_array_equal(mine, [*first, np.float32(mass)])
    for step in range(200):
        action = np.array([2 * np.sin(step)], np.float32)
        seen, reward, *_ = theirs.step(action)
        told, paid, ended, cut, _ = own.step(action)
        np.testing.assert_array_equal(told, [*seen, np.float32(mass)])
        assert paid == pytest.approx(float(reward)) and not ended and cut == (step == 199)


def test_a_family_of_masses_tells_each():
    family = Gymnasium(environment=NAME, grid={"m": (0.5, 2.0)}).family
    live = [Environment(source) for source in family]
    assert [world.observations for world in live] == [4, 4]
    assert [float(world._env.m) for world in live] == [0.5, 2.0]
