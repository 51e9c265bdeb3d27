"""The arms of the claim on additions to soft actor-critic are what they are named after, and differ in one thing at a time."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import actor_critics
import campaign
import tuned_page

from gimbal import recipes

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in actor_critics.ARMS:
        own = {"arm": arm, "moves": 1900, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 1e-3)} for at in actor_critics.TUNED.rates]
        end = ends.get(arm, -900.0)
        found += [own | {"rate": 1e-3, "seed": seed, "return": end + seed} for seed in actor_critics.TUNED.seeds]
    return found


def test_verdicts_of_additions_follow_the_rule():
    assert tuned_page.rule(actor_critics, runs(expo=-200.0)).count("| yes |") == 1
    assert tuned_page.rule(actor_critics, runs(sac=-950.0)).count("| yes |") == 3
    assert tuned_page.rule(actor_critics, runs()).count("| undecided |") == 5, "seeds overlap"


def test_one_addition_at_a_time():
    made = {arm: actor_critics.run_of(arm, 3e-3, 2) for arm in actor_critics.ARMS}
    sac = made["sac"]
    for arm in ("by age", "by errors"):
        assert replace(made[arm], store=sac.store) == sac != made[arm]
    normalized, simba = made["normalized"], made["simba"]
    assert replace(normalized, policy=sac.policy) == sac and normalized.policy == replace(sac.policy, normalize=True)
    assert replace(simba, policy=normalized.policy, update=normalized.update) == normalized
    assert simba.policy.blocks and simba.policy.normalize and simba.update.critic.blocks
    assert made["expo"].store == made["rlpd"].store == recipes.load("rlpd").store
    for run in made.values():
        assert run.update.optimization.learning_rate == run.update.optimization.critic_learning_rate == 3e-3


def test_what_each_recorded_addition_does_is_at_work():
    for run in campaign.load(actor_critics.RECORD):
        assert run["moves"] == actor_critics.STEPS - 100
        assert ("importance" in run) == (run["arm"] == "by errors") and run.get("importance", 0.5) < 1
        assert ("edited" in run) == (run["arm"] == "expo")
