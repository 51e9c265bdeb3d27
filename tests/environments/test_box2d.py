"""Box2D's environments and PushT: inferred sizes, and a run stopped in the middle of an episode resumes to the same bits."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gimbal import recipes
from gimbal.config import Text
from gimbal.environments.gym import Registered
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import Task
from gimbal.report.files import deterministic
from gimbal.runtime.local import run_local

LANDER, PUSHT = "LunarLanderContinuous-v3", "gym_pusht:gym_pusht/PushT-v0"
SIZES = {LANDER: ("Box2D", 8, 2), "BipedalWalker-v3": ("Box2D", 24, 4), PUSHT: ("gym_pusht", 5, 2)}


def run_of(recipe, name, steps):
    changes = {"environment": Text(name), "steps": steps, "store.learning_starts": 20, "held_out": Text("none")}
    return replace(recipes.load(recipe, changes), threads=1)


@pytest.mark.parametrize("name", SIZES)
def test_a_stopped_run_goes_on_to_the_same_bits(single_thread, tmp_path, name):
    package, observations, actions = SIZES[name]
    pytest.importorskip(package, reason=f"{package} is not installed: make test-environments")
    whole = run_of("sac", name, 8)
    assert isinstance(whole.policy, SquashedGaussian)
    assert (whole.policy.observations, whole.policy.actions) == (observations, actions)
    run_local(whole, tmp_path / "whole")
    run_local(replace(whole, steps=4, checkpoint_every=4), tmp_path / "cut")
    run_local(replace(whole, checkpoint_every=4), tmp_path / "cut", resume=True)
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    one, other = ([deterministic(json.loads(line)) for line in found] for found in lines)
    assert one == other and len(one) == 8 and one[-1]["replay/moves"] > 0


def test_choices_are_taken_too(single_thread, tmp_path):
    pytest.importorskip("Box2D", reason="Box2D is not installed: make test-environments")
    run = run_of("dqn", "LunarLander-v3", 3)
    assert (run.policy.observations, run.policy.actions) == (8, 4)
    run_local(run, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["replay/moves"] > 0


def test_an_episode_does_not_depend_on_those_before_it():
    """Of gymnasium's own walker it does: its world outlives its bodies, and contacts are solved in another order."""
    pytest.importorskip("Box2D", reason="Box2D is not installed: make test-environments")
    action = np.array([0.3, -0.2, 0.5, 0.1], dtype=np.float32)

    def played(live, seed):
        first = live.reset(Task(id="0", source="BipedalWalker-v3", seed=seed), 0)
        return [first.tobytes(), *(live.step(action).observation.tobytes() for _ in range(20))]

    fresh, used = (Registered(source="BipedalWalker-v3").open() for _ in range(2))
    played(used, 9)
    assert played(fresh, 3) == played(used, 3)
