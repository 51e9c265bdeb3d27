"""Arms of the claims on composed skills and on rules that are read differ in one thing, and their verdicts follow the rule."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import atoms
import campaign
import rulebook
import tuned_page

from gimbal.environments.hops import questions
from gimbal.runtime.compose import check


def test_arms_of_rulebook_differ_in_who_reads_or_in_the_weight():
    none, half, weighted = (rulebook.run_of(arm, 1e-3, 3) for arm in rulebook.TUNED.arms)
    assert [run.workflow.aware for run in (none, half, weighted)] == [0.0, 0.5, 0.5]
    assert replace(none, workflow=half.workflow) == half
    assert weighted.correction is not None and replace(weighted, correction=None) == half
    check(weighted)


def test_arms_of_atoms_differ_in_what_is_taught_first_or_in_how_pairs_are_trained():
    first = {start: atoms.first(start, 3) for start in atoms.STARTS}
    for start, run in first.items():
        assert replace(run, tasks=first["atoms"].tasks) == first["atoms"], start
    assert first["others"].tasks == replace(first["atoms"].tasks, world=1)
    second = {arm: atoms.second(arm, 1e-3, 3, "gimbal-tiny-memory") for arm in atoms.TUNED.arms}
    assert second[atoms.ATOMS] == second[atoms.OTHERS] == second[atoms.COMPOSITES]
    assert second[atoms.ATOMS_SFT] == second[atoms.COMPOSITES_SFT]
    rl, sft = second[atoms.ATOMS], second[atoms.ATOMS_SFT]
    assert (rl.tasks, rl.steps, rl.prompts_per_step) == (sft.tasks, sft.steps, sft.prompts_per_step)
    assert first["composites"].tasks == rl.tasks
    assert {arm.split(",")[0] for arm in atoms.TUNED.arms} == set(atoms.STARTS)
    assert not set(questions("across", rl.tasks.split)) & set(questions("across", atoms.COMPOSED.tasks.split))
    check(rl)


@pytest.mark.parametrize("claim", [atoms, rulebook])
def test_a_verdict_takes_all_seeds(claim):
    tuned = claim.TUNED
    best = tuned.rates[0]
    rows = [(arm, rate, 100, -rate) for arm in tuned.arms for rate in tuned.rates]
    first = tuned.arms[0 if claim is atoms else 1]
    rows += [(arm, best, seed, 0.3 + 0.01 * seed + 0.5 * (arm == first)) for arm in tuned.arms for seed in tuned.seeds]
    runs = [dict(zip(("arm", "rate", "seed", tuned.figure), row, strict=True)) for row in rows]
    assert tuned_page.rule(claim, runs).count("| yes |") == len(claim.COMPARED)
    without = [run for run in runs if (run["arm"], run["seed"]) != (first, 4)]
    assert tuned_page.rule(claim, without).count("seeds are missing") == len(claim.COMPARED)


@pytest.mark.parametrize("claim", [atoms, rulebook])
def test_no_run_is_recorded_twice(claim):
    recorded = [(run["arm"], run["rate"], run["seed"]) for run in campaign.load(claim.RECORD)]
    assert len(set(recorded)) == len(recorded) <= claim.TUNED.whole
