"""The verdict on self-play follows from the record, and a record that says otherwise has another."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import kuhn
import kuhn_page

from gimbal.ops import SequenceMean
from gimbal.recipes import function


def test_the_verdict_follows_from_the_record():
    runs = [run for run in campaign.load(kuhn.RECORD) if run["arm"] == "resets"]
    assert len(runs) == kuhn.ARMS["resets"] and all(run["course"][-1] == run["after"] for run in runs)
    good = [run | {"arm": "kuhn", "after": 0.1, "cpu": 300.0} for run in runs]
    assert kuhn_page.reached(good, "kuhn")
    assert not kuhn_page.reached(good[1:], "kuhn"), "a seed is missing"
    assert not kuhn_page.reached([good[0] | {"after": 0.101}, *good[1:]], "kuhn")
    assert not kuhn_page.reached([good[0] | {"cpu": 301.0}, *good[1:]], "kuhn")
    assert "not reached" in kuhn_page.verdict(good[1:], "kuhn")
    wide = [run | {"arm": "wide", "after": 1.0, "cpu": 400.0} for run in runs][: kuhn.ARMS["wide"]]
    assert kuhn_page.reached(wide, "wide"), "Leduc poker has no bar of seconds"
    assert not kuhn_page.reached([wide[0] | {"after": 1.001}, *wide[1:]], "wide")


def test_what_is_measured_is_the_recipe_as_it_ships():
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (the extra games)")
    run = kuhn.run_of("kuhn", 3)
    assert (run.seed, run.threads) == (3, 1) and run.policy == function("kuhn")().policy
    assert kuhn.run_of("leduc", 0).workflow.game.name == kuhn.run_of("leduc", 0).tasks.game == "leduc_poker"
    assert kuhn.run_of("slow", 2) == replace(function("leduc")(), seed=2, threads=1)
    wide, small = kuhn.run_of("wide", 1), kuhn.run_of("small", 2)
    assert (wide.prompts_per_step, wide.steps) == (256, 120)
    for former in (wide, small):
        assert (former.aggregation, former.reference_rate) == (SequenceMean(), 0.03)
    assert (small.seed, small.prompts_per_step, small.steps) == (2, 64, 300) and small.policy == function(
        "leduc"
    )().policy
    before = kuhn.run_of("resets", 3)
    assert (before.reference_rate, before.reference_resets, before.num_generations) == (0.0, (100, 200), 8)
    for game in campaign.load(kuhn.RECORD):
        steps = kuhn.run_of(game["arm"], game["seed"]).steps
        assert len(game["course"]) == 1 + -(-steps // kuhn.EVERY)
