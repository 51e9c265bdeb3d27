"""The arms of the claim on actions nearer to the data are what they are named after, and its verdicts follow from the record."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import nearer
import tuned_page

from gimbal.environments.minari import recording

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in nearer.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0, "outside": 0.4}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 1e-3)} for at in nearer.TUNED.rates]
        found += [
            own | {"rate": 1e-3, "seed": n, "return": ends.get(arm.replace(" ", "_"), -400.0) + n} for n in range(5)
        ]
    return found


def test_verdicts_on_corrections_toward_the_data_follow_the_rule():
    assert tuned_page.rule(nearer, runs(td3_bc_nearer=-150.0)).count("| yes |") == 2
    assert tuned_page.rule(nearer, runs(td3_bc_nearer=-150.0, bc=-150.0)).count("| undecided |") == 4


def test_what_is_corrected_is_what_was_trained(tmp_path):
    base = nearer.run_of("td3_bc", 3e-3, 4)
    base.policy.load(4).save(tmp_path)
    run = nearer.run_of("cdsa", 3e-3, 4, str(tmp_path))
    assert (base.update.imitation.alpha, run.policy.action_weight, run.policy.state_weight) == (2.5, 0.3, 0.3)
    assert run.tasks == base.tasks and run.policy.load(0).base is not None
    assert {base.update.optimization.learning_rate, run.update.optimization.learning_rate} == {3e-3}


def test_recorded_steps_are_inside_and_others_are_outside():
    known = recording(nearer.DATA).episodes[:1]
    assert nearer.outside(recording(nearer.DATA).episodes[20:22]) == 0
    assert nearer.outside(recording("gimbal/pendulum/random-v0").episodes[:2]) > 0.5
    assert nearer.outside(known) < 0.5
