"""The arms of the claim on ranked plans differ in the policy alone, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import plans
import tuned_page

pytest.importorskip("gymnasium")


def runs(sampled=0.0, **ends):
    found = []
    for arm in plans.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0, "without a crash": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 3e-3)} for at in plans.TUNED.rates]
        end = ends.get(arm.split()[0], 0.0)
        more = sampled if arm == "ranked" else 0.0
        found += [own | {"rate": 3e-3, "seed": n, "return": end + n / 100, "sampled": more + n / 100} for n in range(5)]
    return found


def test_verdicts_on_plans_follow_the_rule():
    assert tuned_page.rule(plans, runs(ranked=0.9)).count("| yes |") == 2
    assert tuned_page.rule(plans, runs(sampled=0.9)).count("| yes |") == 1
    assert tuned_page.rule(plans, runs(ranked=0.9, whole=0.9)).count("| yes |") == 1
    assert tuned_page.rule(plans, runs()).count("| undecided |") == 3


def test_the_arms_differ_in_the_policy_alone():
    ranked, whole, flow = (plans.run_of(arm, 3e-3, 4, "somewhere") for arm in plans.TUNED.arms)
    assert ranked == flow and ranked.policy.flow == "somewhere"  # which is evaluated before it learns
    assert replace(whole, policy=ranked.policy) == ranked and whole.policy.actions == ranked.policy.actions


def test_nothing_that_does_not_learn_depends_on_a_rate():
    found = [run for run in campaign.load(plans.RECORD) if run["arm"] == "flow" and run["seed"] == 100]
    assert len({run["return"] for run in found}) <= 1
