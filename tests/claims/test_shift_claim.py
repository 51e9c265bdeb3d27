"""The verdict on forgetting follows from the record, and the arms differ in what they draw again alone."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import shift
import tuned_page

from gimbal.dataflow.replay.preferences import Uniform


def test_one_thing_differs_between_the_arms():
    assert replace(shift.store_of("swd"), preference=Uniform()) == shift.store_of("uniform") != shift.store_of("swd")


def test_the_goal_changes_when_the_setting_says():
    assert [shift.goal(done) for done in (0, 990, 1000, 1990, 2000, 2990)] == [1, 1, -1, -1, 1, 1]
    learner = shift.learner_of(1e-3, 0)
    for done, sign in ((0, 1), (1000, -1)):
        batch = shift.acted(learner, done, np.random.default_rng(0))
        seen, action = batch.decisions.observation_NSO, batch.decisions.action_NSA
        assert batch.reward_NS.numpy() == pytest.approx((-(action - sign * seen).square())[:, :, 0].numpy(), abs=1e-6)


def test_the_verdict_follows_the_rule():
    def runs(swd):
        rows = [(arm, rate, 100, -rate) for arm in shift.TUNED.arms for rate in shift.TUNED.rates]
        rows += [
            (arm, 1e-3, seed, -0.5 + swd * (arm == "swd") + 0.01 * seed)
            for arm in shift.TUNED.arms
            for seed in range(5)
        ]
        return [dict(zip(("arm", "rate", "seed", "reward"), row, strict=True)) for row in rows]

    assert "| yes |" in tuned_page.rule(shift, runs(0.2)) and "| no |" in tuned_page.rule(shift, runs(0.0))
    assert "seeds are missing" in tuned_page.rule(shift, runs(0.2)[:-1])


def test_the_record_is_of_this_claim():
    assert {run["arm"] for run in campaign.load(shift.RECORD)} <= set(shift.TUNED.arms)
