"""Ways there and back without resets: their goals, their ends, what they pay, and what the next one begins with."""

import gymnasium
import numpy as np
import pytest

from gimbal.environments.docking import BEGINNING, DOCK, Docking
from gimbal.environments.gym import Environment, goals_of
from gimbal.environments.there_and_back import ThereAndBack, docking, docking_one_way, docking_resets
from gimbal.records import Task

WAYS = "gimbal.environments.there_and_back:docking"


def walked(world, seen, steps):
    """Straight to the goal that is wanted; all steps until a way has ended."""
    told = []
    for _ in range(steps):
        way = seen["desired_goal"] - seen["achieved_goal"]
        told.append(world.step(way / max(1e-6, np.abs(way).max()) * 0.1))
        if told[-1][2] or told[-1][3]:
            break
        seen = told[-1][0]
    return told


def test_it_goes_to_the_dock_and_back_and_is_where_it_was():
    world = docking()
    seen, _ = world.reset(seed=1)
    np.testing.assert_array_equal(seen["desired_goal"], DOCK)
    for goal, other in ((DOCK, BEGINNING), (BEGINNING, DOCK), (DOCK, BEGINNING)):
        told = walked(world, seen, 40)
        last, reward, there, late, info = told[-1]
        assert (reward, there, late, info["is_success"]) == (0.0, True, False, True)
        assert all(step[1:4] == (-1.0, False, False) and "begins" not in step[4] for step in told[:-1])
        np.testing.assert_allclose(last["desired_goal"], goal, rtol=1e-6)  # what was wanted, not what comes next
        assert np.linalg.norm(last["achieved_goal"] - goal) < 0.15
        seen = info["begins"]
        np.testing.assert_allclose(seen["desired_goal"], other, rtol=1e-6)
        np.testing.assert_array_equal(seen["achieved_goal"], last["achieved_goal"])


def test_a_way_that_takes_too_long_is_cut_off_and_is_no_end():
    world = docking()
    world.reset(seed=1)
    told = [world.step(np.zeros(2)) for _ in range(81)]
    assert [place for place, step in enumerate(told) if step[3]] == [39, 79] and not any(step[2] for step in told)
    assert told[39][4]["is_success"] is False and told[39][1] == -1.0
    np.testing.assert_allclose(told[40][0]["desired_goal"], BEGINNING, rtol=1e-6)
    assert told[40][1] == 0.0 or told[40][1] == -1.0


def test_one_way_never_leads_back_and_resets_leave_the_next_way_to_a_reset():
    world = docking_one_way()
    told = walked(world, world.reset(seed=1)[0], 40)
    np.testing.assert_array_equal(told[-1][4]["begins"]["desired_goal"], DOCK)
    world = docking_resets()
    told = walked(world, world.reset(seed=1)[0], 40)
    assert told[-1][2] and "begins" not in told[-1][4]
    np.testing.assert_array_equal(world.reset(seed=2)[0]["desired_goal"], DOCK)


class Ending(gymnasium.Wrapper):
    """It ends by itself after seven steps."""

    def reset(self, **how):
        self.steps = 0
        return self.env.reset(**how)

    def step(self, action):
        seen, reward, _, _, info = self.env.step(action)
        self.steps += 1
        return seen, reward, self.steps == 7, False, info


def test_where_the_environment_ends_it_is_reset():
    world = ThereAndBack(Ending(Docking()), home=BEGINNING, reached=1.0, limit=40)
    world.reset(seed=1)
    told = [world.step(np.zeros(2)) for _ in range(7)]
    assert told[-1][2:4] == (True, False) and "begins" not in told[-1][4]


def test_hindsight_knows_what_other_goals_would_have_paid():
    goals = goals_of(WAYS)
    place, wanted = np.array([[0.4, 0.1], [0.0, 0.0]]), np.array([DOCK, DOCK])
    assert goals.reward(place, wanted).tolist() == [0.0, -1.0]
    assert goals.terminated(place, wanted).tolist() == [True, False]


def test_a_live_one_says_what_comes_next_flat():
    world = Environment(WAYS)
    seen = world.reset(Task(id="0", source=WAYS, seed=1), 0)
    for _ in range(40):
        moment = world.step(np.array([0.1, 0.0], np.float32))
        if moment.ended:
            break
    assert moment.begins.shape == seen.shape == (6,)
    assert moment.left is moment.begins and not np.array_equal(moment.begins, moment.observation)


class Talking(gymnasium.Wrapper):
    def step(self, action):
        seen, reward, *_, info = self.env.step(action)
        return seen, reward, False, False, {**info, "begins": seen}


def talking():
    return Talking(Docking())


def test_what_begins_where_nothing_ends_is_refused():
    world = Environment(f"{__file__}:talking")
    world.reset(Task(id="0", seed=1), 0)
    with pytest.raises(ValueError, match="ends none: let it be terminated or truncated"):
        world.step(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ThereAndBack(gymnasium.make("Pendulum-v1"), home=(0, 0), reached=1.0, limit=5), "and .* has none"),
        (lambda: ThereAndBack(Docking(), home=(0, 0, 0), reached=1.0, limit=5), "home is a goal like"),
        (lambda: ThereAndBack(Docking(), home=(0, 0), reached=1.0, limit=0), "limit counts steps, at least 1"),
    ],
)
def test_wrong_settings_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
