"""The arms of the claim on steering are what they are named after, and its verdicts follow from the record."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import steered
import tuned_page

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in steered.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 3e-3)} for at in steered.TUNED.rates]
        found += [own | {"rate": 3e-3, "seed": n, "return": ends.get(arm, -900.0) + n} for n in range(5)]
    return found


def test_verdicts_on_steering_follow_the_rule():
    assert tuned_page.rule(steered, runs(steered=-300.0)).count("| yes |") == 2
    assert tuned_page.rule(steered, runs(steered=-300.0, sac=-200.0)).count("| yes |") == 1


def test_what_is_steered_is_what_was_cloned(tmp_path, monkeypatch):
    monkeypatch.setattr(steered, "MOVES", 1)
    played = steered.cloned(1e-3, 4, tmp_path)
    assert (played.policy.proposals, played.seed) == (1, 4)
    run = steered.run_of("dsrl", 3e-3, 4)
    assert run.update.optimization.learning_rate == run.update.optimization.critic_learning_rate == 3e-3
    teacher, policy = played.policy.load(0), type(run.policy)(**{**vars(run.policy), "flow": str(tmp_path)}).load(0)
    pairs = zip(teacher.flow.parameters(), policy.flow.parameters(), strict=True)
    assert all(bool((one == other).all()) for one, other in pairs)


def test_the_noise_was_left_in_every_recorded_run():
    for run in campaign.load(steered.RECORD):
        assert ("size" in run) == (run["arm"] == "steered") and 0 < run.get("size", 0.5) < 1.5**2
