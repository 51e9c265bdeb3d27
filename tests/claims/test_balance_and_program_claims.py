"""Claims on balances by state and on programs over actions: arms are what they are named after, verdicts follow the record."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import combinatorial
import half_good
import tuned_page

from gimbal.environments import coupled_bandit
from gimbal.policies.balanced import Balanced
from gimbal.runtime import compose

pytest.importorskip("gymnasium")
pytest.importorskip("h5py")
pytest.importorskip("scipy")


def runs(claim, **ends):
    found = []
    for arm in claim.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 1e-3)} for at in claim.TUNED.rates]
        found += [own | {"rate": 1e-3, "seed": n, "return": ends.get(arm, -900.0) + n} for n in range(5)]
    return found


def test_verdicts_follow_the_rule():
    assert tuned_page.rule(half_good, runs(half_good, famo2o=-300.0)).count("| yes |") == 4
    assert tuned_page.rule(half_good, runs(half_good)).count("| undecided |") == 4
    assert tuned_page.rule(combinatorial, runs(combinatorial, listed=-300.0)).count("| no: below |") == 1


def test_arms_on_half_good_data_differ_in_the_balance_alone(tmp_path):
    data = half_good.data(tmp_path / "data")
    assert data.recording.steps == 16_000
    found = {arm: half_good.run_of(arm, 3e-3, 4, data) for arm in half_good.ARMS}
    for run in found.values():
        compose.check(run)
    assert [found[arm].update.beta for arm in half_good.ARMS[:-1]] == [0, 0.3, 1, 3]
    family, plain = found["famo2o"], found["iql 1"]
    assert (family.policy.low, family.policy.high) == (0.0, 3.0) and family.update.uniform
    for name in ("critic", "gamma", "tau", "expectile", "optimization", "most"):
        assert vars(family.update)[name] == vars(plain.update)[name], name
    assert replace(family, policy=plain.policy, update=plain.update) == plain


def test_following_is_measured_between_the_halves(tmp_path):
    data = half_good.data(tmp_path / "data")
    policy = Balanced(observations=3, actions=1, hidden=(4,), low=0.0, high=2.0).load(0)
    for weight in policy.balance.parameters():
        weight.data.zero_()
    policy.balance.moments[0].weight.data[0, 1] = -50.0  # a unit that is on where sin(angle) < 0
    policy.balance.moments[-1].weight.data[0, 0] = 50.0
    assert 0.8 < half_good.follows(policy, data) < 1.0, "1 above the middle there, the middle elsewhere"


def test_both_arms_of_the_program_play_the_same_bandit():
    pair = {arm: combinatorial.run_of(arm, 3e-3, 1) for arm in combinatorial.TUNED.arms}
    for run in pair.values():
        compose.check(run)
    one, other = pair["sequoia"], pair["listed"]
    for name in ("store", "engine", "steps", "sampling", "prompts_per_step"):
        assert vars(one)[name] == vars(other)[name], name
    for name in ("gamma", "tau", "explore", "optimization"):
        assert vars(one.update)[name] == vars(other.update)[name], name
    assert other.policy.actions == 37 and other.policy.hidden == one.policy.hidden
    for run in pair.values():
        playing = combinatorial.table(run.policy.load(0).requires_grad_(False))
        assert (playing.sum(1) == 1).all() and 40 < coupled_bandit.returns(playing) < 71
    assert np.array_equal(coupled_bandit.myopic().sum(1), np.ones(64))


def test_recorded_runs_of_a_family_have_their_balances():
    for run in campaign.load(half_good.RECORD):
        assert ("follows" in run) == (run["arm"] == "famo2o")
    assert all(40 < run["return"] < 71 for run in campaign.load(combinatorial.RECORD))
