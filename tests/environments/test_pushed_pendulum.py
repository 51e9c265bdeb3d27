"""The pendulum that two turn: gymnasium's where nobody pushes, and what a push is."""

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gimbal.environments.gym import Environment, Gymnasium
from gimbal.environments.pushed_pendulum import PushedPendulum

NAME = "gimbal.environments.pushed_pendulum:PushedPendulum"


def played(world, action, steps=60, begin=(2.0, 0.5)):
    world.reset(seed=3, options={"begin": begin})
    return [world.step(np.array(action)) for _ in range(steps)]


def test_without_pushes_it_is_the_pendulum_of_gymnasium():
    theirs = gymnasium.make("Pendulum-v1").unwrapped
    theirs.reset(seed=0)
    theirs.state = np.array([2.0, 0.5])
    for torque in (1.3, -5.0):  # a torque beyond its strength is cut to it
        own = played(PushedPendulum(), (torque, 0.0))
        theirs.state = np.array([2.0, 0.5])
        for mine in own:
            seen, reward, *_ = theirs.step(np.array([torque]))
            np.testing.assert_allclose(mine[0], seen, atol=1e-5)
            assert mine[1] == pytest.approx(reward, abs=1e-5)


def test_a_push_is_a_torque_that_costs_nothing():
    """Pushed by 1.5 the pendulum turns as by a motor that gives 1.5 more; of the reward only the motor's own counts."""
    world = PushedPendulum()
    world.reach = 1.5
    one, other = played(world, (0.5, 1.0), 1)[0], played(PushedPendulum(), (2.0, 0.0), 1)[0]
    np.testing.assert_array_equal(one[0], other[0])
    assert one[1] - other[1] == pytest.approx(0.001 * (2.0**2 - 0.5**2))
    beyond = played(world, (0.5, 9.0), 1)[0]
    np.testing.assert_array_equal(beyond[0], one[0])
    world.reach = 0.0
    np.testing.assert_array_equal(played(world, (0.5, 1.0), 1)[0][0], played(world, (0.5, 0.0), 1)[0][0])


def pushes(seed=1, **sizes):
    world = PushedPendulum()
    vars(world).update(sizes)
    world.reset(seed=seed)
    found = []
    for _ in range(world.longest):
        found.append(world.own_push())
        world.steps += 1
    return np.array(found)


def test_its_own_pushes_have_the_sizes_that_are_set():
    assert not pushes().any()
    steady = [pushes(seed, steady=0.7) for seed in range(20)]
    assert {float(x) for push in steady for x in push} == {-0.7, 0.7} and all(len(set(push)) == 1 for push in steady)
    wave = pushes(wave=1.2)
    np.testing.assert_allclose(wave[40:], wave[:-40], atol=1e-9)
    assert 1.15 < wave.max() <= 1.2 and abs(wave.mean()) < 1e-9
    gust = pushes(gust=1.5).reshape(-1, 10)
    assert (gust == gust[:, :1]).all() and set(gust[:, 0]) == {-1.5, 0.0, 1.5}
    assert (pushes(gust=1.5) == pushes(gust=1.5)).all() and (pushes(2, gust=1.5) != pushes(gust=1.5)).any()


def test_its_attributes_are_set_by_its_name():
    environment = Environment(f"{NAME}@reach=0,steady=1")
    assert environment.interface == "3 observations, 2 real actions" and environment.limits == ([-2, -1], [2, 1])
    task = Gymnasium(environment=NAME)[0]
    moments = []
    for push in (0.0, 1.0):
        environment.reset(task, 0)
        moments.append(environment.step(np.array([0.0, push])))
    np.testing.assert_array_equal(moments[0].observation, moments[1].observation)
    environment.reset(task, 0)
    for _ in range(199):
        assert not environment.step(np.zeros(2)).truncated
    assert environment.step(np.zeros(2)).truncated
