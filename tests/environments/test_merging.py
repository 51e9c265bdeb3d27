"""Merging among recorded cars: what is replayed, what reacts, and what the drivers do who were recorded."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gimbal.environments import merging
from gimbal.environments.conformance import Conformance
from gimbal.environments.gym import Environment, Gymnasium, Registered
from gimbal.environments.merging import (
    BRAKE,
    CARS,
    LENGTH,
    PUSH,
    PUSHES,
    UNSEEN,
    Log,
    Merging,
    Reacting,
    Response,
    Scene,
    begun,
    crashed,
    drivers,
    moved,
    recorded,
    seen,
)
from gimbal.environments.merging_plans import AHEAD, MergingPlans, plans

NUMBERS = range(12)


def by_gap(seen_CF):
    """A driver who keeps a distance: reads the gap to the car in front and the merging car, nothing else."""
    return seen_CF[:, 1] - 0.5 * seen_CF[:, 3]


def driven(number, rule, weight=1.0, push=None):
    """The places of the cars in each scene, where the merging car drives otherwise than its log."""
    log, reacting = recorded(number), Reacting(rule, weight)
    scene, places = log.scenes[0], []
    for step in range(Merging.longest - 1):
        places.append(scene.place_C)
        scene = moved(scene, log.own_S[step] if push is None else push, reacting(scene, log, step))
    return np.stack(places)


def as_recorded(number):
    return np.stack([scene.place_C for scene in recorded(number).scenes[:-1]])


def test_at_a_weight_of_0_the_log_is_replayed_whatever_the_merging_car_does():
    for number in NUMBERS:
        assert np.array_equal(driven(number, by_gap, weight=0.0, push=-BRAKE), as_recorded(number))
    assert not np.array_equal(driven(3, by_gap, push=-BRAKE), as_recorded(3))


def test_where_the_merging_car_drives_as_it_did_the_log_comes_back_whatever_f_is():
    for number in NUMBERS:
        np.testing.assert_allclose(driven(number, by_gap), as_recorded(number), atol=1e-9)


def test_drivers_who_go_by_what_f_sees_alone_react_as_they_would_have():
    """a^log = f(x^log), so a = f(x)."""

    def rule(seen_CF):
        return np.clip(by_gap(seen_CF), -BRAKE, PUSH)

    log = recorded(5)
    log = replace(log, push_SC=np.stack([rule(seen(scene)) for scene in log.scenes]))
    other = replace(log.scenes[7], own=log.scenes[7].own + np.array([6.0, -2.0]))
    np.testing.assert_allclose(Reacting(rule)(other, log, 7), rule(seen(other)))
    halfway = Reacting(rule, 0.5)(other, log, 7)
    np.testing.assert_allclose(halfway, (rule(seen(other)) + log.push_SC[7]) / 2)


def test_what_f_does_not_explain_of_a_driver_stays_and_pushes_are_bounded():
    own, place_C, speed_C = np.array([-9.0, 8.0]), -7.0 * np.arange(3), np.full(3, 8.0)
    scene = Scene(own, place_C, speed_C)
    nearer = replace(scene, own=np.array([-5.0, 8.0]))  # four metres more: by_gap falls by .4
    log = Log((scene,), np.zeros(1), np.array([[1.3, 1.3, -4.9]]))
    np.testing.assert_allclose(Reacting(by_gap)(nearer, log, 0), [0.9, 0.9, -5.0])


def test_a_response_is_fitted_and_holds_for_logs_that_it_has_not_seen():
    """Most of what drivers do: what is left is what each of them wants."""
    x = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    learned = Response.fitted(x, np.sin(2 * x[:, 0]) + x[:, 1], ridge=1e-6)
    np.testing.assert_allclose(learned(x), np.sin(2 * x[:, 0]) + x[:, 1], atol=1e-3)
    logs = [recorded(number) for number in range(100, 120)]
    of_KF = np.concatenate([seen(scene) for log in logs for scene in log.scenes])
    push_K = np.concatenate([log.push_SC.ravel() for log in logs])
    fitted = merging.response(60)
    assert 0.8 < 1 - (fitted(of_KF) - push_K).var() / push_K.var() < 0.99


def test_drivers_let_in_who_is_enough_ahead_of_them():
    scene, _, _ = begun(0)
    own = np.array([scene.place_C[4] + LENGTH + 4.0, 8.0])
    near = replace(scene, own=own + np.array([-own[0] - 10.0, 0.0]), place_C=scene.place_C - own[0] - 10.0)
    yielding, going = drivers(near, np.full(CARS, -20.0)), drivers(near, np.full(CARS, 60.0))
    assert yielding[4] < going[4] and np.array_equal(yielding[:3], going[:3]), "those in front see nobody"


def test_a_crash_ends_it_and_costs_and_cars_that_are_near_before_the_merge_are_in_another_lane():
    scene, _, _ = begun(0)
    beside = replace(scene, own=np.array([scene.place_C[2], 8.0]))
    at_merge = replace(beside, own=np.array([0.0, 8.0]), place_C=scene.place_C - scene.place_C[2])
    assert beside.own[0] < -LENGTH / 2 and not crashed(beside) and crashed(at_merge)
    world = Merging()
    world.reacts = 0.0
    world.reset(seed=0)
    over, total = False, 0.0
    while not over:
        _, reward, over, cut, info = world.step(PUSHES.index(2.0))
        total += reward
        assert not cut, "full speed into a replay crashes in this scene"
    assert reward < -8 and info == {"is_success": False}


def test_worlds_are_told_by_name_and_drivers_have_scenes_of_their_own():
    name = "gimbal.environments.merging:Merging"
    one, other, free = (Environment(name + mark) for mark in ("@reacts=0", "", "@logs=0"))
    task = Gymnasium(environment=name, seed=3)[0]
    assert np.array_equal(one.reset(task, 0), other.reset(task, 0)), "the same log"
    first, apart = free.reset(task, 0), 0.0
    assert not np.array_equal(first, one.reset(task, 0))
    for _ in range(12):
        apart = max(
            apart, float(np.abs(one.step(np.array([0])).observation - other.step(np.array([0])).observation).max())
        )
    assert apart > 0.01, "cars that react do otherwise than those that are replayed"
    world = Merging()
    world.logs = 0
    world.reset(seed=1)
    assert world.log is None and not np.array_equal(world.scene.place_C, begun(UNSEEN)[0].place_C)


@pytest.mark.parametrize("field, value", [("logs", -1), ("logs", 2.5), ("reacts", 1.5), ("reacts", -0.1)])
def test_settings_outside_are_refused(field, value):
    world = Merging()
    setattr(world, field, value)
    with pytest.raises(ValueError, match="logs counts recorded scenes"):
        world.reset(seed=0)


# By plans.


def test_a_plan_is_its_first_pushes_one_by_one():
    whole, steps = MergingPlans(), Merging()
    whole.latch, plan = 3, np.array([1.0, -0.5, 0.2, *[9.0] * (AHEAD - 3)])
    assert np.array_equal(whole.reset(seed=4)[0], steps.reset(seed=4)[0])
    found, reward, *_ = whole.step(plan)
    each = [steps.go(push) for push in (PUSH, -0.5 * BRAKE, 0.2 * PUSH)]
    assert np.array_equal(found, each[-1][0]) and reward == pytest.approx(sum(one[1] for one in each))


@pytest.mark.parametrize("latch", [0, 9, 2.5])
def test_a_latch_outside_is_refused(latch):
    world = MergingPlans()
    world.latch = latch
    with pytest.raises(ValueError, match="from 1 to 8"):
        world.reset(seed=0)


def test_recorded_plans_played_a_step_at_a_time_are_the_log():
    episode, log = plans(4).episodes[3], recorded(3)
    scene = log.scenes[0]
    for step, plan in enumerate(episode.action_SA):
        share = float(plan[0])
        scene = moved(scene, share * (PUSH if share > 0 else BRAKE), log.push_SC[step])
        np.testing.assert_allclose(scene.own, log.scenes[step + 1].own, atol=1e-4)
    assert np.array_equal(episode.action_SA[0, 1:], episode.action_SA[1, :-1])
    assert np.array_equal(episode.observation_SO[0], merging.shown(log.scenes[0], log.push_SC[0]))


def test_it_keeps_the_protocol():
    """Who brakes stands and is safe; at full speed into a replay there is a crash in these scenes."""
    name = "gimbal.environments.merging:Merging@reacts=0"
    Conformance(
        spec=Registered(source=name),
        tasks=[Gymnasium(environment=name)[index] for index in range(3)],
        oracle=lambda task, seen: np.array([PUSHES.index(-5.0)]),
        null=lambda task, seen: np.array([PUSHES.index(2.0)]),
        score=lambda task, moments: float(moments[-1].reward > -5),
    ).check()
