"""The arms of the claim on acting in a learned world are what they are named after, and its verdicts follow from the record."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import in_world
import tuned_page

from gimbal import recipes
from gimbal.environments.minari import Minari
from gimbal.environments.recording import read

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in in_world.ARMS:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -at} for at in in_world.TUNED.rates]
        found += [own | {"rate": 1e-3, "seed": n, "return": ends.get(arm, -400.0) + n} for n in range(5)]
    return found


def test_verdicts_on_acting_in_a_world_follow_the_rule():
    assert tuned_page.rule(in_world, runs(world=-150.0)).count("| yes |") == 3
    assert tuned_page.rule(in_world, runs(world=-150.0, td3=-150.0)).count("| undecided |") == 1


def test_one_arm_acts_in_the_world_alone_and_the_others_move_as_often_on_its_data(tmp_path):
    source = in_world.data(tmp_path / "data")
    assert read(tmp_path / "data" / "data").steps == 5_000
    recipes.load("world").policy.load(0).save(made(tmp_path / "model"))
    acts = in_world.run_of("world", 3e-3, 4, f"{tmp_path / 'model'}:{source}@horizon=50")
    assert acts.tasks.source.endswith("@horizon=50") and acts.held_out.tasks.environment == "Pendulum-v1"
    assert acts.steps * acts.engine.segment * acts.store.update_to_data == 5_000
    for arm in in_world.ARMS[1:]:
        run = in_world.run_of(arm, 3e-3, 4, source)
        assert run.tasks == Minari(dataset=source) and run.steps * run.store.moves == 5_000
        assert run.store.minibatch == acts.store.minibatch
        assert run.learns.optimization.learning_rate == 3e-3 == acts.learns.optimization.critic_learning_rate
    assert in_world.run_of("td3", 3e-3, 4, source).update.imitation is None
    assert in_world.run_of("td3_bc", 3e-3, 4, source).update.imitation is not None


def made(place):
    place.mkdir()
    return place
