"""Arms of the claim on segments differ in how proofs are cut, and rollouts go by the policies of tactics."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import pytest
import segments as claim
import tuned_page

from gimbal.runtime.compose import check

TRAINED = (claim.SEGMENTS, claim.TACTICS, claim.WHOLE)


def test_arms_differ_in_how_proofs_are_cut():
    segments, *others = (claim.run_of(arm, 2e-3, 3) for arm in TRAINED)
    check(segments)
    for other in others:
        assert other.tasks != segments.tasks and other.tasks.tasks == segments.tasks.tasks
        assert replace(other, tasks=segments.tasks, steps=segments.steps) == segments
    assert len(others[1].tasks) == claim.THEOREMS < len(segments.tasks) < len(others[0].tasks)


def test_arms_see_as_many_tokens():
    for arm in TRAINED:
        run = claim.run_of(arm, 2e-3, 0)
        assert run.steps * claim.PROMPTS * sum(claim.lengths(run.tasks)) == pytest.approx(claim.TOKENS, rel=0.01)


def test_rollouts_are_judged_by_the_policies_of_tactics():
    rows = [(arm, rate, 100, rate, 0.0) for arm in TRAINED for rate in claim.TUNED.rates]
    rows += [(arm, 5e-3, seed, 0.3 + 0.01 * seed, 0.9) for arm in TRAINED for seed in claim.TUNED.seeds]
    runs = [dict(zip(("arm", "rate", "seed", "proved", "rolled"), row, strict=True)) for row in rows]
    beside = claim.beside(runs)
    assert not [job for jobs in claim.left(runs) for job in jobs] and len(beside) == claim.TUNED.whole
    assert [run["proved"] for run in claim.TUNED.fresh(beside, claim.ROLLOUTS)] == [0.9] * 5
    said = tuned_page.rule(claim, beside)
    assert said.count("| yes |") == 1 and said.count("| undecided |") == 2
    assert [job for jobs in claim.left(runs[:-1]) for job in jobs] == [(claim.WHOLE, 5e-3, 4)]
    recorded = [(run["arm"], run["rate"], run["seed"]) for run in campaign.load(claim.RECORD)]
    assert len(set(recorded)) == len(recorded) <= claim.TUNED.whole
