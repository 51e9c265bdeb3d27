"""The claim on edits of routes: arms differ in edits alone, the base has no training, and figures are those of the rule."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import route_edits as claim


def test_arms_differ_in_edits_alone():
    whole, draft = (claim.run_of(arm, 1e-4, 3) for arm in (claim.WHOLE, claim.DRAFT))
    assert (whole.sampling.reviews, whole.sampling.in_place) == (1, True) and draft.sampling.reviews == 0
    assert replace(whole, sampling=draft.sampling) == draft and whole.sampling.threshold == claim.TRAINED
    assert replace(draft.sampling, reviews=1, in_place=True) == whole.sampling
    assert {task.prompt for task in map(whole.tasks.task, range(50))}.isdisjoint(
        {claim.TASKS[index].prompt for index in range(400)}
    )


def test_a_score_at_three_passes_by_hand():
    points = [(0.9, 8.0, 0.0), (0.8, 4.0, 0.0), (0.6, 2.0, 0.0)]
    assert claim.at(points) == 0.6 and claim.at([*points[:1], (0.5, 1.0, 0.0)]) == pytest.approx(
        0.5 + 0.4 / 7, abs=1e-4
    )


def test_the_base_is_measured_once_and_first():
    assert next(claim.left([])) == [(claim.BASE, 0.0, 0)]
    assert next(claim.left([{"arm": claim.BASE, "rate": 0.0, "seed": 0}])) == []


def made(arm, rate, seed, gain):
    return {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        "trained": 0.5,
        "gain": gain,
        "edited": 0.5,
        "plain": 0.5,
        "two": 0.5,
        "points": [],
    }


def test_five_runs_are_beside_the_base_as_the_rule_says():
    runs = [made(claim.BASE, 0.0, 0, 0.1)]
    assert claim.beside_base([]) == "" and "larger" not in claim.beside_base(runs)
    for gains, said in (
        ((0.2,) * 5, "yes"),
        ((0.0,) * 5, "refuted"),
        ((0.2,) * 4 + (0.1,), "undecided"),
        ((0.1,) * 5, "undecided"),
    ):
        tuning = [made(claim.WHOLE, rate, 100, 0.2) for rate in claim.TUNED.rates]
        fresh = [made(claim.WHOLE, 1e-4, seed, gain) for seed, gain in enumerate(gains)]
        assert f"than *base*: {said}." in claim.beside_base(runs + tuning + fresh)


def test_in_each_recorded_run_edits_rewrite_squares():
    runs = campaign.load(claim.RECORD)
    assert len(runs) == claim.TUNED.whole + 1
    for run in runs:
        assert len(run["points"]) == len(claim.THRESHOLDS) and 1 <= run["points"][0][1] < 1.2
        assert run["gain"] == pytest.approx(run["edited"] - run["plain"], abs=1e-4)
        assert run["arm"] != claim.WHOLE or run["again"] > 0
