"""The arms of the claim on families are what they are named after, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import families
import tuned_page

from gimbal.environments.gym import opened


def runs(**ends):
    found = []
    for arm in families.ARMS:
        own = {"arm": arm, "mean": -300.0, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "worst": -abs(at - 1e-3)} for at in families.TUNED.rates]
        end = ends.get(arm, -1000.0)
        found += [own | {"rate": 1e-3, "seed": seed, "worst": end + seed} for seed in families.TUNED.seeds]
    return found


def test_verdicts_on_families_follow_the_rule():
    assert tuned_page.rule(families, runs(randomized=-2000.0)).count("| yes |") == 1
    assert tuned_page.rule(families, runs(randomized=-500.0, alone=-500.0)).count("| no: below |") == 2
    assert tuned_page.rule(families, runs()).count("| undecided |") == 3


def test_the_family_is_nine_pendulums_that_take_five_torques():
    assert len(families.FAMILY) == 9 and families.FAMILY[families.NOMINAL] == "families:Torques@m=1,l=1"
    heavy = opened("families:Torques@m=2,l=0.6")
    assert (heavy.unwrapped.m, heavy.unwrapped.l, heavy.action_space.n) == (2.0, 0.6, 5)
    assert [heavy.action(choice).tolist() for choice in (0, 2, 4)] == [[-2.0], [0.0], [2.0]]
    assert families.SEARCHED.sources == families.TESTED.sources == families.FAMILY
    searched, tested = ({task.seed for task in tasks} for tasks in (families.SEARCHED, families.TESTED))
    assert len(searched) == 5 and len(tested) == 10 and not searched & tested


def test_arms_differ_in_their_pendulums_alone():
    one, other = (families.run_of(families.tasks_of(model), 1e-3, 2) for model in (0, 4))
    assert replace(one, tasks=other.tasks) == other != one and one.update.optimization.learning_rate == 1e-3


@pytest.mark.slow
def test_worst_cases_are_added_until_none_is_worse(monkeypatch):
    monkeypatch.setattr(families, "STEPS", 3_000)
    found = families.measure(("worst cases", 1e-3, 100))
    assert found["models"][0] == "m=1,l=1" and len(set(found["models"])) == len(found["models"]) <= families.ROUNDS
    assert len(found["least"]) == len(found["models"]) and found["worst"] <= found["mean"]


def test_what_is_recorded_of_worst_cases_begins_with_the_nominal_one():
    recorded = [run for run in campaign.load(families.RECORD) if "models" in run]
    assert all(run["models"][0] == "m=1,l=1" and len(run["models"]) == len(run["least"]) for run in recorded)
    pairs = {}
    for run in recorded:
        pairs.setdefault((run["rate"], run["seed"]), []).append((run["models"], run["least"]))
    assert all(found[0] == found[-1] for found in pairs.values()), "both arms have the same networks"
