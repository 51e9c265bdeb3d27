"""The arms of the claim on a clip for each limb differ in the objective alone, its body moves as said, and its verdicts follow."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import limbs
import tuned_page

from gimbal.runtime.compose import check

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in limbs.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 3e-3)} for at in limbs.TUNED.rates]
        found += [own | {"rate": 3e-3, "seed": n, "return": ends.get(arm, -15.0) + n / 9} for n in range(5)]
    return found


def test_verdicts_on_limbs_follow_the_rule():
    assert tuned_page.rule(limbs, runs(limbs=-10.0)).count("| yes |") == 2
    assert tuned_page.rule(limbs, runs(joint=-10.0)).count("| undecided |") == 1


def test_the_arms_differ_in_the_objective_alone():
    made = {arm: limbs.run_of(arm, 3e-3, 4) for arm in limbs.TUNED.arms}
    for run in made.values():
        check(run)
        assert replace(run, objective=made["joint"].objective) == made["joint"]
    assert made["limbs"].objective.clip_low == made["joint"].objective.clip_high == 0.2
    assert made["limbs"].objective.groups == ((0, 1, 2), (3, 4, 5)) and made["joint wide"].objective.clip_low == 0.4


def test_hands_are_where_the_angles_put_them_and_the_first_three_numbers_turn_the_first_arm():
    env = limbs.TwoArms()
    env.reset(seed=3)
    env.angles[:] = 0
    assert np.allclose(env.gaps, env.places - [1.0, 0.0])
    env.step([9.0, 0, 0, 0, 0, -0.4])
    assert np.allclose(env.angles, [[0.25, 0, 0], [0, 0, -0.1]])
    assert np.allclose(env.places[0] - env.gaps[0], [np.cos(0.25), np.sin(0.25)])
    away = np.linalg.norm(env.gaps, axis=-1).mean()
    assert env.step([0.0] * 6)[1] == pytest.approx(-away) and (np.linalg.norm(env.places, axis=-1) <= 0.9).all()
    assert [env.step([0.0] * 6)[3] for _ in range(18)] == [False] * 17 + [True]


def test_one_ratio_is_what_its_own_clip_acts_on_in_every_recorded_run():
    for run in campaign.load(limbs.RECORD):
        assert 0 < run["clipped"] < 1 and run["kl"] > 0
        assert run["joint"] == run["clipped"] or run["arm"] == "limbs"
