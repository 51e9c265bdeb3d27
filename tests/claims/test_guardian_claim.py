"""The arms of the claim on the guardian differ in what they are charged for, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import guardian
import tuned_page

from gimbal.environments.minari import recording
from gimbal.environments.recording import located

pytest.importorskip("h5py")


def runs(**values):
    found = []
    for arm in guardian.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "value": -at} for at in guardian.TUNED.rates]
        found += [
            own | {"rate": 1e-3, "seed": n, "value": (worth := values.get(arm, -30.0)) + n, "kept": worth + n}
            for n in range(5)
        ]
    return found


def test_verdicts_on_the_guardian_follow_the_rule():
    for helped in ("both", "price"):
        found = tuned_page.rule(guardian, runs(**{helped: 70.0}))
        assert (found.count("| yes |"), found.count("| undecided |")) == (2, 2)
    assert tuned_page.rule(guardian, runs()).count("| undecided |") == 4


def test_the_arms_differ_in_what_they_are_charged_for():
    made = {arm: guardian.run_of(arm, 1e-3, 4, "gimbal/cart/bounds-v0") for arm in guardian.TUNED.arms}
    both, limit = made["both"].update, made["limit"].update
    assert replace(made["limit"], update=both) == made["both"]
    assert replace(limit, guard=both.guard, controllers=both.controllers) == both
    assert limit.guard == replace(both.guard, price=0.0) and list(limit.controllers) == ["guard.penalty"]
    price, neither = made["price"].update, made["neither"].update
    for other in (price, neither):
        assert replace(other, guard=both.guard, controllers=both.controllers) == both
    assert price.guard == replace(both.guard, penalty=0.0) and list(price.controllers) == ["guard.price"]
    assert neither.guard == replace(both.guard, price=0.0, penalty=0.0) and not neither.controllers
    assert both.guard.price > 0 and list(both.controllers) == ["guard.price", "guard.penalty"]
    assert both.inside.optimization.learning_rate == both.inside.optimization.critic_learning_rate == 1e-3


def test_nothing_out_of_bounds_is_recorded(tmp_path):
    data = recording(guardian.careful(str(tmp_path)))
    assert len(data.episodes) == 50 and data.steps == 5000 and data.violations == 0 and located(tmp_path) is not None
    assert all(abs(episode.observation_SO[:, 0]).max() <= 1 for episode in data.episodes)


def test_the_value_is_the_return_less_what_broken_bounds_cost_and_the_guard_is_at_work_in_every_recorded_run():
    for run in campaign.load(guardian.RECORD):
        assert run["value"] == pytest.approx(run["return"] - 5 * run["cost"], abs=0.02)
        assert run["outside"] > 0 and ("price" in run) == (run["arm"] in ("both", "price"))
        assert ("penalty" in run) == (run["arm"] in ("both", "limit"))
