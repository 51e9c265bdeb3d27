"""The arms of the claim on recorded traffic differ in the cars alone, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import traffic
import tuned_page

pytest.importorskip("gymnasium")


def runs(off=0.1, **ends):
    found = []
    for arm in traffic.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0, "size of off": off if arm == "replayed" else 0.1}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 3e-3)} for at in traffic.TUNED.rates]
        found += [own | {"rate": 3e-3, "seed": n, "return": ends.get(arm, 0.0) + n / 100} for n in range(5)]
    return found


def test_verdicts_on_traffic_follow_the_rule():
    assert tuned_page.rule(traffic, runs(reacting=0.9)).count("| yes |") == 1
    assert tuned_page.rule(traffic, runs(drivers=0.9)).count("| yes |") == 1
    assert tuned_page.rule(traffic, runs(off=0.5)).count("| yes |") == 1
    assert tuned_page.rule(traffic, runs()).count("| undecided |") == 3


def test_the_arms_differ_in_the_cars_alone():
    one, *others = (traffic.run_of(arm, 3e-3, 4) for arm in traffic.TUNED.arms)
    assert all(replace(other, tasks=one.tasks) == one and other.tasks != one.tasks for other in others)
    assert one.optimization.learning_rate == one.optimization.critic_learning_rate == 3e-3
    assert one.held_out.tasks.environment == traffic.WORLDS["drivers"]


def test_what_is_recorded_is_off_by_what_it_says():
    for run in campaign.load(traffic.RECORD):
        assert run["off"] == pytest.approx(run["own"] - run["return"], abs=0.011), run
        assert run["size of off"] == pytest.approx(abs(run["off"]), abs=0.011), run
