"""The verdicts on drafts follow from the record, arms differ in one thing, and evaluations are counted as the rule says."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import drafts
import tuned_page

pytest.importorskip("diffusers")


def test_one_thing_at_a_time_differs_between_arms():
    plain, few, whole = (drafts.run_of(arm, 3e-4, 3) for arm in drafts.TUNED.arms)
    assert plain.update == few.update == whole.update and plain.sampling == few.sampling == whole.sampling
    assert few == replace(whole, workflow=few.workflow) and whole.workflow == replace(few.workflow, draft=10)
    assert few.workflow.keep == plain.num_generations and few.prompts_per_step == plain.prompts_per_step
    assert plain.update.optimization.learning_rate == 3e-4


def test_verdicts_follow_the_rule():
    def runs(**ends):
        rows = [(arm, rate, 100, -rate) for arm in drafts.TUNED.arms for rate in drafts.TUNED.rates]
        rows += [(arm, 1e-4, seed, ends.get(arm, -1.0) + 0.01 * seed) for arm in drafts.TUNED.arms for seed in range(5)]
        return [dict(zip(("arm", "rate", "seed", "reward"), row, strict=True)) for row in rows]

    assert tuned_page.rule(drafts, runs(drafts=-0.5)).count("| yes |") == 2
    assert tuned_page.rule(drafts, runs()).count("| undecided |") == 3
    assert tuned_page.rule(drafts, runs()[:-1]).count("seeds are missing") == 2
    assert [len(part) for part in drafts.TUNED.left([])] == [12, 0]
    assert [len(part) for part in drafts.TUNED.left(runs()[:12])] == [0, 15]


def test_each_recorded_run_spent_the_budget_and_drafts_left_candidates_out():
    for run in campaign.load(drafts.RECORD):
        assert run["steps"] == {"plain": 8, "drafts": 6, "whole": 6}[run["arm"]], run
        assert (run["unselected"] > 0) == (run["arm"] != "plain")
        assert run["agreement"] > 0.5
