"""The arms of the claim on caution are what they are named after, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import robust
import tuned_page

from gimbal.environments.tabular import put
from gimbal.environments.uncertain import TotalVariation, greedy, planned, worth


def runs(**ends):
    found = []
    for arm in robust.TUNED.arms:
        own = {"arm": arm, "as it is": 0.2, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "worst case": -abs(at - 0.1)} for at in robust.TUNED.rates]
        found += [own | {"rate": 0.1, "seed": n, "worst case": ends.get(arm, 0.07) + n / 1e4} for n in range(5)]
    return found


def test_verdicts_on_caution_follow_the_rule():
    assert tuned_page.rule(robust, runs(robust=0.1)).count("| yes |") == 2
    assert tuned_page.rule(robust, runs()).count("| undecided |") == 3


def test_each_arm_of_caution_differs_as_it_is_named():
    cautious, plain, direct, trailing = (
        robust.method_of(arm, 0.3) for arm in ("robust", "plain", "greedy", "trailing")
    )
    assert replace(plain, uncertainty=cautious.uncertainty) == cautious == replace(direct, eta=cautious.eta)
    assert replace(trailing, trailing=False, eta=cautious.eta) == cautious and plain.uncertainty.radius == 0


def test_the_bounds_that_the_page_names_are_exact_and_none_is_above_them():
    problem, near = put(), TotalVariation(radius=robust.RADIUS)
    best, plain = greedy(planned(problem, near)), greedy(planned(problem))
    found = [
        [round(worth(problem, policy, at), 3) for at in (near, TotalVariation(radius=0.0))] for policy in (best, plain)
    ]
    assert found == [[0.115, 0.22], [0.068, 0.246]]
    for run in campaign.load(robust.RECORD):
        assert run["worst case"] < 0.1155 and run["as it is"] < 0.2462


def test_a_recorded_run_comes_again():
    recorded = [run for run in campaign.load(robust.RECORD) if run["arm"] == "robust"]
    if recorded:
        again = robust.measure(("robust", recorded[0]["rate"], recorded[0]["seed"]))
        assert np.isclose(again["worst case"], recorded[0]["worst case"], atol=2e-4)
