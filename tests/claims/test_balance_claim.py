"""The arms of the claim on trajectory balance differ in one thing, verdicts follow the record, and a run of dose.py comes out again."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import balance
import campaign
import dose
import tuned_page

from gimbal.advantages import GroupCentered
from gimbal.objectives import Reinforce, TrajectoryBalance
from gimbal.ops import SequenceSum
from gimbal.runtime.compose import check

SUMS = {"advantage": GroupCentered(), "aggregation": SequenceSum()}


def test_arms_differ_in_their_objective_alone():
    clip = dose.run_of("age", dose.AGE["clip"], 16, 1e-4, 3)
    balanced, untied = (balance.run_of(arm, 1e-4, 3) for arm in balance.OWN)
    assert balanced == replace(clip, objective=TrajectoryBalance(), **SUMS)
    assert untied == replace(clip, objective=Reinforce(), **SUMS)
    assert check(balanced) == [] and clip.max_staleness == 16 and clip.ahead == "full"


def test_verdicts_follow_the_rule():
    def runs(**ends):
        rows = [(arm, rate, 100, rate) for arm in balance.TUNED.arms for rate in balance.TUNED.rates]
        rows += [(arm, 3e-4, seed, ends.get(arm, 0.5) + 0.01 * seed) for arm in balance.TUNED.arms for seed in range(5)]
        return [dict(zip(("arm", "rate", "seed", "score"), row, strict=True)) for row in rows]

    assert tuned_page.rule(balance, runs(balance=0.8)).count("| yes |") == 3
    worse = tuned_page.rule(balance, runs(decoupled=0.8))
    assert worse.count("| undecided |") == 2 and worse.count("| no: below |") == 1
    assert [len(part) for part in balance.left([])] == [1, 6, 0]
    assert [len(part) for part in balance.left(runs())] == [1, 0, 0]


def test_the_record_of_dose_comes_out_again_and_the_log_ratio_was_at_work():
    runs = campaign.load(balance.RECORD)
    (again,) = [run for run in runs if run["arm"] == "again"]
    (then,) = [
        run
        for run in dose.at(dose.load(), "age", balance.AGE, "decoupled")
        if (run["rate"], run["seed"]) == (again["rate"], again["seed"])
    ]
    assert again["score"] == then["score"]
    for run in runs:
        assert run["oldest"] == balance.AGE
        assert run["arm"] != "balance" or (run["fitted"] < -0.5 and run["error"] < 4.7)
