"""The arms of the claim on a corrected policy are what they are named after, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import residual
import tuned_page

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in residual.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 3e-3)} for at in residual.TUNED.rates]
        found += [own | {"rate": 3e-3, "seed": n, "return": ends.get(arm, -900.0) + n} for n in range(5)]
    return found


def test_verdicts_on_corrections_follow_the_rule():
    assert tuned_page.rule(residual, runs(residual=-300.0)).count("| yes |") == 3
    assert tuned_page.rule(residual, runs(residual=-300.0, td3=-300.0)).count("| undecided |") == 1


def test_the_arms_differ_in_the_burn_in_and_begin_with_what_was_cloned(tmp_path, monkeypatch):
    monkeypatch.setattr(residual, "MOVES", 1)
    residual.cloned(1e-3, 4, tmp_path)
    with_it, at_once = (residual.run_of(arm, 3e-3, 4, str(tmp_path)) for arm in ("residual", "at once"))
    assert (with_it.update.burn_in, at_once.update.burn_in) == (1000, 0)
    assert replace(at_once, update=with_it.update) == with_it and with_it.policy.base == str(tmp_path)
    assert with_it.policy.load(0).base is not None and with_it.policy.reach == 1
    assert residual.run_of("td3", 3e-3, 4).update.optimization.critic_learning_rate == 3e-3


def test_something_was_corrected_in_every_recorded_run_that_has_a_base():
    for run in campaign.load(residual.RECORD):
        assert ("size" in run) == (run["arm"] in ("residual", "at once")) and 0 < run.get("size", 0.5) < 1
