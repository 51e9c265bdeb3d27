"""The arms of the claim on corrected plans differ in what the flow clones, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

pytest.importorskip("h5py")

import campaign
import corrected
import tuned_page


def runs(**values):
    found = []
    for arm in corrected.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -at} for at in corrected.TUNED.rates]
        found += [
            own
            | {"rate": 1e-2, "seed": n, "return": (worth := values.get(arm, 7.0)) + n}
            | dict.fromkeys(("alone", "sampled"), worth + n)
            for n in range(5)
        ]
    return found


def test_verdicts_on_corrected_plans_follow_the_rule():
    assert tuned_page.rule(corrected, runs(corrected=20.0)).count("| yes |") == 4
    assert tuned_page.rule(corrected, runs(cloned=20.0)).count("| no: below |") == 2
    assert tuned_page.rule(corrected, runs()).count("| undecided |") == 4


def test_the_second_clonings_differ_in_corrections_alone():
    one, other = (corrected.second_of(arm, 3, "FLOW", "gimbal/merging/random-v0") for arm in ("corrected", "filtered"))
    assert one.store.corrections.factors and not other.store.corrections.factors
    assert replace(other, store=one.store) == one and one.policy.model == "FLOW" and one.seed == 3


def test_plans_were_corrected_in_every_recorded_run_that_says_so():
    for run in campaign.load(corrected.RECORD):
        assert (run.get("better", 0) > 0.1) == (run["arm"] == "corrected")
        assert ("left out" in run) == (run["arm"] != "cloned")
