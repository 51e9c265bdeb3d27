"""The rows of benchmarks/control.py: SB3's runs beside those of the claim; and what the actors' benchmark holds equal."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gimbal import recipes
from gimbal.environments.gym import Registered
from gimbal.runtime.base import Local


def script(name):
    """Under a name of its own: claims/ has a control.py too."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for their types
    spec.loader.exec_module(module)
    return module


sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import by_hand

actors, control = script("actors"), script("control")


def test_a_row_is_the_claims_runs_beside_those_of_sb3():
    runs = [{"seed": 0, "return": -150.0, "seconds": 9.0}, {"seed": 1, "return": -400.0, "seconds": 5.0}]
    row = control.beside("sac", runs)
    ours = [run["return"] for run in json.loads(control.CLAIM.read_text()) if run["bar"] == "sac"]
    assert (row["sb3_runs"], row["sb3_median"], row["sb3_worst"], row["sb3_seconds"]) == (2, -275.0, -400.0, 7.0)
    assert row["gimbal_runs"] == 5 and row["gimbal_worst"] == round(min(ours), 1) and row["sb3"] == runs


def test_sb3_is_evaluated_from_the_states_that_the_claims_runs_are():
    for name in ("sac", "td3", "cartpole", "dqn", "pendulum"):
        held_out = recipes.load(name).held_out.tasks
        assert (held_out.seed, len(held_out)) == (2, control.EPISODES)

    class Still:
        def predict(self, seen, deterministic):
            return np.zeros(1, np.float32), None

    task = recipes.load("sac").held_out.tasks[0]
    live, moments = Registered(source="Pendulum-v1").open(), []
    live.reset(task, 0)
    while not moments or not moments[-1].ended:
        moments.append(live.step(np.zeros(1, np.float32)))
    found = control.played(Still(), "Pendulum-v1", task.seed)
    assert found == pytest.approx(sum(moment.reward for moment in moments))


def test_every_bar_of_the_claim_has_a_case():
    assert {case.bar for case in control.CASES.values()} == {
        run["bar"] for run in json.loads(control.CLAIM.read_text())
    }


def test_what_falls_begins_at_its_setting_and_ends_at_0():
    assert control.falling(0.2)(1.0) == 0.2 and control.falling(0.2)(0.0) == 0.0


@pytest.mark.parametrize("name", control.PACES)
def test_speed_is_compared_at_equal_networks_minibatches_and_updates(name):
    pace = control.PACES[name]
    run, options = recipes.load(pace.recipe), pace.options
    assert options.get("policy_kwargs", {"net_arch": [64, 64]})["net_arch"] == [*run.policy.hidden]
    assert run.engine.slots == pace.beside
    if name == "ppo_pendulum":
        moves = run.optimization.epochs * run.optimization.minibatches
        steps = run.prompts_per_step * run.sampling.max_length
        assert (steps, options["n_epochs"]) == (pace.beside * options["n_steps"], run.optimization.epochs)
        assert (steps / run.optimization.minibatches, moves / steps) == (options["batch_size"], pace.updates)
    else:
        theirs = options.get("gradient_steps", 1) / options.get("train_freq", 1) / pace.beside
        assert run.store.update_to_data == pace.updates == theirs
        assert (run.store.minibatch, run.store.n) == (options["batch_size"], options.get("n_steps", 1))


@pytest.mark.parametrize("name", by_hand.UPDATES)
def test_an_update_by_hand_moves_what_it_trains(name, monkeypatch):
    trained = []
    made = by_hand.moves
    monkeypatch.setattr(
        by_hand, "moves", lambda weights, *rest, **more: trained.extend(weights) or made(weights, *rest, **more)
    )
    update = by_hand.UPDATES[name]()
    before = [weight.detach().clone() for weight in trained]
    for _ in range(4):
        update()
    assert all(not weight.equal(old) for weight, old in zip(trained, before, strict=True))


def test_actors_apart_and_together_are_one_run_but_for_where_they_act():
    one, other = (actors.run_of(arm, 3, 4_000) for arm in ("apart", "together"))
    assert (one.engine.slots * one.runtime.workers, one.max_staleness) == (other.engine.slots, 1)
    assert replace(one, engine=other.engine, runtime=Local(), max_staleness=0) == other
    assert replace(one.engine, slots=4) == other.engine and other.steps == 40
    assert Registered(source=other.tasks.source).open().interface == "3 observations, 1 real actions"
