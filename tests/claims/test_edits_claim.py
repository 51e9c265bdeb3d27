"""Arms of the claim on edits differ in how programs are written, and its verdict follows the rule."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import edits as claim
import pytest
import tuned_page

from gimbal.rewards.passes_tests import PassesTests
from gimbal.runtime.compose import check


def test_arms_differ_in_how_programs_are_written():
    whole, edits = (claim.run_of(arm, 1e-3, 3) for arm in claim.TUNED.arms)
    assert edits.tasks.tasks == whole.tasks and edits.held_out.rewards == (PassesTests(edits=True),)
    assert whole.held_out.rewards == (PassesTests(),)
    as_whole = {"tasks": whole.tasks, "steps": whole.steps, "held_out": whole.held_out}
    assert replace(edits, **as_whole) == whole and edits.held_out.tasks == whole.held_out.tasks
    check(edits)


def test_arms_see_as_many_tokens_and_what_is_held_out_is_new():
    for arm in claim.TUNED.arms:
        run = claim.run_of(arm, 1e-3, 0)
        mean = sum(len(run.tasks[n].columns["completion"]) + 1 for n in range(len(run.tasks))) / len(run.tasks)
        assert run.steps * claim.PROMPTS * mean == pytest.approx(claim.TOKENS, rel=0.01)
        trained = {run.tasks[n].prompt for n in range(len(run.tasks))}
        assert not trained & {run.held_out.tasks[n].prompt for n in range(len(run.held_out.tasks))}
    for run in campaign.load(claim.RECORD):
        assert run["tokens"] == pytest.approx(claim.TOKENS, rel=0.02)


def test_a_verdict_takes_all_seeds():
    tuned = claim.TUNED
    rows = [(arm, rate, 100, 0.0, -rate) for arm in tuned.arms for rate in tuned.rates]
    rows += [
        (arm, 1e-3, seed, 0.1 + 0.01 * seed, 0.3 + 0.01 * seed + 0.5 * (arm == claim.EDITS))
        for arm in tuned.arms
        for seed in tuned.seeds
    ]
    runs = [dict(zip(("arm", "rate", "seed", "at_1", "at_32"), row, strict=True)) for row in rows]
    assert tuned_page.rule(claim, runs).count("| yes |") == 1
    without = [run for run in runs if (run["arm"], run["seed"]) != (claim.WHOLE, 4)]
    assert tuned_page.rule(claim, without).count("seeds are missing") == 2
    recorded = [(run["arm"], run["rate"], run["seed"]) for run in campaign.load(claim.RECORD)]
    assert len(set(recorded)) == len(recorded) <= tuned.whole
