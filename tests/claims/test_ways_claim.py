"""The arms of the claim on ways back differ in where ways lead and begin, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import tuned_page
import ways

from gimbal import recipes

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in ways.TUNED.arms:
        found += [{"arm": arm, "rate": at, "seed": 100, "return": -at} for at in ways.TUNED.rates]
        found += [{"arm": arm, "rate": 2e-3, "seed": n, "return": ends.get(arm, -30.0) + n} for n in range(5)]
    return found


def test_verdicts_on_resets_follow_the_rule():
    assert tuned_page.rule(ways, runs(both=-20.0, resets=-10.0)).count("| yes |") == 3
    assert tuned_page.rule(ways, runs()).count("| undecided |") == 3
    assert tuned_page.rule(ways, runs(both=-20.0)).count("| no: below |") == 1


def test_the_arms_differ_in_their_environment_alone():
    made = {arm: ways.run_of(arm, 3e-3, 4) for arm in ways.TUNED.arms}
    assert all(replace(run, tasks=made["both"].tasks) == made["both"] for run in made.values())
    assert made["both"].tasks == recipes.load("there_and_back").tasks
    assert made["both"].held_out.tasks.environment == made["resets"].tasks.environment
    rates = made["both"].update.optimization
    assert rates.learning_rate == rates.critic_learning_rate == 3e-3 and made["both"].seed == 4


def test_all_recorded_runs_took_the_same_steps():
    """Ways are not cut, so that the last may go on beyond the mark by less than its longest."""
    for run in campaign.load(ways.RECORD):
        assert ways.MARKS[-1] <= run["steps"] < ways.MARKS[-1] + 40 and run["ways"] >= ways.MARKS[-1] // 40
