"""The arms of the claim on corrections that see ahead differ in what they read, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import korr
import tuned_page

from gimbal.policies.frozen_base import Residual
from gimbal.policies.koopman import Koopman

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in korr.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0, "minus error": -0.2 if arm == "network" else -0.1}
        found += [own | {"rate": at, "seed": 100, "twice": -at} for at in korr.TUNED.rates]
        found += [own | {"rate": 3e-4, "seed": n, "twice": ends.get(arm, -900.0) + n} for n in range(5)]
    return found


def test_verdicts_on_foresight_follow_the_rule():
    assert tuned_page.rule(korr, runs(linear=-300.0)).count("| yes |") == 4
    assert tuned_page.rule(korr, runs(linear=-300.0, plain=-300.0)).count("| undecided |") == 1


def test_the_arms_differ_in_what_the_correction_reads():
    made = {arm: korr.run_of(arm, 1e-3, 4, "base") for arm in korr.TUNED.arms}
    linear = made["linear"]
    assert [made[arm].policy.foresight for arm in ("plain", "base")] == [None, None]
    assert made["network"].policy.foresight == replace(linear.policy.foresight, features=0, predict=(64,))
    assert all(replace(run, policy=linear.policy) == linear for run in made.values())
    assert linear.policy.base == "base" and linear.tasks.environment == "korr:Blown@gust=0.5"


def test_blows_are_those_of_the_attribute_and_the_motor_alone_acts():
    env = korr.Blown()
    env.gust = 1.0
    env.reset(seed=3)
    for _ in range(12):
        env.step([0.5])
    assert env.inner.gust == 1.0 and env.inner.blow in (-1, 0, 1) and env.inner.spread == 0.3
    still = korr.Blown()
    still.inner.reset(options={"begin": (0.0, 0.0)})
    assert still.step([0.0])[1] == 0 and still.step([1.0])[0][2] == pytest.approx(0.15, abs=1e-6)


def test_a_model_that_says_nothing_changes_is_off_by_what_changed():
    policy = Residual(observations=3, actions=1, bound=2.0, foresight=Koopman(features=0)).load(0)
    env, squares = korr.Blown(), []
    env.gust = 0.5
    seen = [torch.from_numpy(env.reset(seed=1000)[0])]
    for _ in range(env.longest):
        seen.append(torch.from_numpy(env.step([0.0])[0]))
    squares = [(seen[at] - seen[at + korr.AHEAD]).square().mean() for at in range(len(seen) - korr.AHEAD)]
    assert korr.error_ahead(policy, 1) == pytest.approx(float(torch.stack(squares).mean().sqrt()), rel=1e-4)


def test_something_was_corrected_and_foreseen_in_every_recorded_run_that_does():
    for run in campaign.load(korr.RECORD):
        assert ("size" in run) == (run["arm"] != "base") and 0 < run.get("size", 0.5) < 1
        assert ("minus error" in run) == (run["arm"] in ("linear", "network"))
