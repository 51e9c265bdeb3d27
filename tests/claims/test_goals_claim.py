"""The arms of the claim on hindsight differ in it alone, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import goals
import tuned_page

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in goals.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0, "return": 0.0}
        found += [
            own | {"rate": at, "seed": 100, "success": 0.0, "return": -abs(at - 3e-3)} for at in goals.TUNED.rates
        ]
        found += [own | {"rate": 3e-3, "seed": n, "success": ends.get(arm, 0.0) + n / 100} for n in range(5)]
    return found


def test_verdicts_on_hindsight_follow_the_rule():
    assert tuned_page.rule(goals, runs(her=0.9)).count("| yes |") == 2
    assert tuned_page.rule(goals, runs(her=0.9, final=0.9)).count("| undecided |") == 2
    assert tuned_page.rule(goals, runs(gcsl=0.9)).count("| yes |") == 2
    assert goals.TUNED.best(runs(), "her") == 3e-3, "by the return, where no goal is reached"


def test_the_arms_differ_in_hindsight_alone():
    her, final, sac, gcsl, fewer = (goals.run_of(arm, 3e-3, 4) for arm in goals.TUNED.arms)
    assert replace(her, store=sac.store) == replace(final, store=sac.store) == sac
    assert replace(her.store, hindsight=None) == sac.store
    assert final.store.hindsight == replace(her.store.hindsight, strategy="final")
    assert replace(gcsl, store=fewer.store) == fewer and fewer.store == her.store
    assert replace(gcsl.store.hindsight, goals=4) == her.store.hindsight
    assert replace(gcsl, update=her.update, store=her.store) == her
    assert her.update.optimization.learning_rate == her.update.optimization.critic_learning_rate == 3e-3


def test_hindsight_paid_otherwise_in_every_recorded_run_that_has_it():
    for run in campaign.load(goals.RECORD):
        assert (run["relabelled"] > 0) == (run["arm"] != "sac"), run
