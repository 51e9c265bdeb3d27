"""The arms of the claim on drafted plans are what they are named after, and its verdicts follow from the record."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import planned
import tuned_page

pytest.importorskip("gymnasium")


def runs(**ends):
    """Every arm at the smaller rate."""
    found = []
    for chain in (100, 13):
        arms = [arm for arm, made in planned.ARMS.items() if made["chain"] == chain]
        for rate in planned.TUNED.rates:
            for seed in (100, 0, 1, 2, 3, 4):
                ms = {
                    arm: {"return": ends.get(arm.replace(" ", "_"), -300.0) + seed - 1e4 * rate, "ms": 1.0}
                    for arm in arms
                }
                found.append({"chain": chain, "rate": rate, "seed": seed, "arms": ms, "cpu": 1.0})
    return planned.by_arm(found)


def test_verdicts_on_drafted_plans_follow_the_rule():
    assert tuned_page.rule(planned, runs(drafted=-100.0, one_plan=-200.0)).count("| yes |") == 3
    assert tuned_page.rule(planned, runs(noise=-100.0)).count("| yes |") == 1


def test_trainings_are_shared_by_the_arms_of_a_chain():
    first, second = planned.left([])
    assert sorted(first) == [(13, 1e-3, 100), (13, 3e-3, 100), (100, 1e-3, 100), (100, 3e-3, 100)] and second == []


def test_arms_make_plans_as_they_are_named(tmp_path):
    run = planned.run_of(100, 3e-3, 4)
    run.policy.load(4).save(tmp_path)
    specs = {arm: planned.policy_of(run, arm, str(tmp_path)) for arm in planned.ARMS if arm != "short"}
    assert {arm: (spec.draft, spec.refine, spec.candidates) for arm, spec in specs.items()} == {
        "drafted": (True, 5, 8),
        "one plan": (True, 5, 1),
        "draft alone": (True, 0, 1),
        "noise": (False, 100, 8),
    }
    assert specs["noise"].load(0).horizon == 8 and planned.run_of(13, 1e-3, 0).policy.chain == 13
