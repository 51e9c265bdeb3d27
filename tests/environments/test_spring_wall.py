"""A wall with exact energy, and the tank around it: its balance, its limits, and that nothing that a policy does empties it."""

import numpy as np
import pytest

from gimbal.environments.bounded_cart import BoundedCart
from gimbal.environments.spring_wall import PLACE, STEP, EnergyTank, SpringWall, tanked_wall


def pushes(count, seed=0, size=10.0):
    return np.random.default_rng(seed).uniform(-size, size, (count, 1))


def test_energy_changes_by_work_minus_what_is_damped_to_the_last_digits():
    """In the air, in the wall, and through its edge."""
    world = SpringWall()
    for begin in ((0.2, 0.0), (0.97, 2.0), (1.05, -1.0)):
        world.reset(seed=0, options={"begin": begin})
        for action in pushes(150):
            before, (work, lost) = world.energy, world.work(action)
            world.step(action)
            assert world.energy - before == pytest.approx(work - lost, abs=1e-9) and lost >= 0


def test_free_flight_is_that_of_the_equation_and_the_wall_is_a_spring():
    world = SpringWall()
    world.damping = 0.0
    world.reset(seed=0, options={"begin": (-2.0, 0.0)})
    for _ in range(50):
        world.step(np.array([1.0]))
    assert world.state == pytest.approx((-2 + 0.5, 1.0), abs=1e-9), "a second at 1 N"
    world.reset(seed=0, options={"begin": (PLACE + 0.025, 0.0)})
    assert world.pressed == pytest.approx(5)
    assert world.step(np.array([5.0]))[1] == pytest.approx(0, abs=1e-9), "it stands still"
    assert world.state == pytest.approx((1.025, 0.0), abs=1e-9)
    world.reset(seed=0, options={"begin": (PLACE + 0.01, 0.0)})
    period = 2 * np.pi / np.sqrt(200)
    deepest = max(world.step(np.zeros(1))[0][0] * 0 + world.energy for _ in range(int(period / STEP)))
    assert deepest == pytest.approx(0.01, abs=1e-9), "of nothing added, nothing is lost"


def test_what_takes_energy_out_or_fits_is_played_as_it_is():
    tank = tanked_wall()
    tank.reset(seed=0, options={"begin": (0.2, 1.0)})
    *_, info = tank.step(np.array([-3.0]))
    assert info["executed"] == info["proposed"] == [-3.0] and info["cost"] == 0 and tank.energy > 0.5
    *_, info = tank.step(np.array([0.5]))
    assert info["cost"] == 0


def test_the_tank_is_never_emptied_and_its_balance_is_exact():
    for harvest in (0.0, 0.7):
        tank, beside = EnergyTank(SpringWall(), harvest=harvest, most=100.0), SpringWall()
        tank.reset(seed=0, options={"begin": (0.2, 0.0)})
        worked = lost = changed = 0.0
        for at, action in enumerate(pushes(150)):
            action = np.array([10.0]) if at % 40 < 20 else action
            beside.state = tank.env.unwrapped.state
            *_, info = tank.step(action)
            work, damped = beside.work(info["executed"])
            worked, lost, changed = worked + work, lost + damped, changed + info["cost"]
            assert 0 <= float(info["executed"][0] / action[0]) <= 1 and tank.energy >= tank.least - 1e-9
        assert changed > 5 and worked <= tank.begins - tank.least + harvest * lost + 1e-9
        assert tank.energy == pytest.approx(tank.begins - worked + harvest * lost, abs=1e-9)
        assert tank.env.unwrapped.energy == pytest.approx(worked - lost, abs=1e-8), "it began at rest, in the air"
    bare = SpringWall()
    bare.reset(seed=0, options={"begin": (0.2, 0.0)})
    assert max([bare.step(np.array([10.0])) and bare.energy for _ in range(20)]) > 3, "without it there is more at once"


def test_the_share_is_the_largest_that_fits():
    tank = EnergyTank(SpringWall(), energy=0.06, least=0.05)
    tank.reset(seed=0, options={"begin": (0.2, 0.5)})
    port = tank.port
    allowed = [k for k in np.linspace(0, 1, 2001) if port.work(np.array([10.0 * k]))[0] <= 0.01]
    *_, info = tank.step(np.array([10.0]))
    assert info["executed"][0] / 10 == pytest.approx(max(allowed), abs=1e-3)
    assert tank.energy == pytest.approx(0.05, abs=1e-9)


def test_reduces_to_the_environment_with_a_tank_without_end():
    tank, bare = EnergyTank(SpringWall(), energy=np.inf), SpringWall()
    seen, plain = tank.reset(seed=4)[0], bare.reset(seed=4)[0]
    assert np.array_equal(seen[:3], plain)
    for action in pushes(60):
        (seen, reward, *ends, info), (plain, other, *others, _) = tank.step(action), bare.step(action)
        assert np.array_equal(seen[:3], plain) and (reward, ends) == (other, others) and info["cost"] == 0


def test_it_shows_the_tank_and_what_was_played():
    tank = tanked_wall()
    assert tank.reset(seed=0)[0][3:].tolist() == [0.5, 0.0]
    seen, *_, info = tank.step(np.array([10.0]))
    assert seen[3:] == pytest.approx([info["energy"], info["executed"][0]], rel=1e-6)


def test_settings_and_environments_without_a_port_are_refused():
    with pytest.raises(
        ValueError, match=r"EnergyTank filters forces of an environment that tells their work.*does not tell"
    ):
        EnergyTank(BoundedCart())
    with pytest.raises(ValueError, match=r"least 1\.0, most 5\.0 and harvest 0\.0: least is 0 or above"):
        EnergyTank(SpringWall(), least=1.0)
