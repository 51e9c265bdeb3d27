"""Arms of the claim on edits of a harness differ in what an edit is held to, and its verdict follows the rule."""

import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import harness_edits as claim
import pytest
import tuned_page


def test_arms_differ_in_which_tasks_an_edit_names():
    made = {arm: claim.edits(arm, Random(3)) for arm in claim.TUNED.arms}
    for edits in made.values():
        assert [edit.name for edit in edits] == [edit.name for edit in made[claim.FORECAST]]
        assert {edit.name: edit.changes for edit in edits} == claim.POOL
    assert all(edit.fixes == frozenset(claim.TASKS) for edit in made[claim.SCORE])
    for arm, right in ((claim.FORECAST, 8), (claim.POOR, 3)):
        for edit in made[arm]:
            counts = [sum(task.startswith(f"{kind}:") for task in edit.fixes) for kind in range(claim.CLASSES)]
            kind = claim.FIXES.get(edit.name)
            assert sum(counts) == claim.NAMED
            assert max(counts) >= right and (kind is None or counts[kind] >= right)


def test_what_a_harness_is_worth_is_as_told():
    def worth(*names):
        return sum(claim.truth(sum((claim.POOL[name] for name in names), ())).values()) / len(claim.TASKS)

    good = [f"good {kind}" for kind in range(4)]
    assert worth() == pytest.approx(0.275) and worth() == worth("idle 0", "idle 1")
    assert worth(*good, "mixed 5") == pytest.approx(0.6775)
    assert worth(*good) == pytest.approx(0.625) and worth(*good, "mixed 4") == pytest.approx(0.625)
    assert worth("clutter 0") == pytest.approx(0.255)
    assert worth("harmful 6") < worth() and worth("good 0", "harmful 0") == worth()


def test_a_verdict_takes_all_seeds():
    tuned = claim.TUNED
    rows = [(arm, rate, 100, -rate) for arm in tuned.arms for rate in tuned.rates]
    rows += [
        (arm, 0.0, seed, 0.3 + 0.01 * seed + 0.5 * (arm == claim.FORECAST))
        for arm in tuned.arms
        for seed in tuned.seeds
    ]
    runs = [dict(zip(("arm", "rate", "seed", "score"), row, strict=True)) for row in rows]
    assert tuned_page.rule(claim, runs).count("| yes |") == 1
    without = [run for run in runs if (run["arm"], run["seed"]) != (claim.SCORE, 4)]
    assert tuned_page.rule(claim, without).count("seeds are missing") == 3
    recorded = [(run["arm"], run["rate"], run["seed"]) for run in campaign.load(claim.RECORD)]
    assert len(set(recorded)) == len(recorded) <= tuned.whole
