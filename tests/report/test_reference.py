"""Bands are where runs over seeds were; a run that leaves its band for two steps is told so once; nothing else is watched."""

import json
from dataclasses import replace

import pytest

from gimbal import recipes
from gimbal.engines.native import Native
from gimbal.report import reference
from gimbal.report.reference import FILE, WATCHED, Watch, banded, measured, watch
from gimbal.runtime.faults import Faults


def rows(offset, steps=10):
    """A run whose reward rises; the offsets of three seeds are -0.1, 0 and 0.1."""
    return [
        {"reward/mean": 0.5 + 0.01 * step + offset * (-1) ** step, "grad_norm": 2.0 ** (1 + 10 * offset)}
        for step in range(steps)
    ]


def test_a_band_is_the_mean_and_four_deviations_of_one_more_run():
    band = banded([rows(-0.1), rows(0.0), rows(0.1)])
    assert band.keys() == {"reward/mean", "grad_norm"}  # what a run does not have is not watched
    middle = [(a + b) / 2 for a, b in zip(band["reward/mean"]["low"], band["reward/mean"]["high"], strict=True)]
    assert middle[2:-1] == pytest.approx([0.5 + 0.01 * step for step in range(2, 9)], abs=1e-3)
    assert middle[0] == pytest.approx(0.5, abs=1e-3)
    # Squares of residuals 0.01, 0, 0.01 over 2 degrees of freedom a step: 0.1; one more run of 3: * sqrt(4 / 3); times 4.
    half = (band["reward/mean"]["high"][4] - band["reward/mean"]["low"][4]) / 2
    assert half == pytest.approx(4 * 0.1 * (4 / 3) ** 0.5, rel=2e-3)
    assert band["grad_norm"]["low"][0] > 0  # a factor and not a difference


def test_two_steps_beyond_are_told_once():
    band = {"recipe": "small", "seeds": 3, "metrics": {"pass_rate": {"low": [0.4] * 6, "high": [0.6] * 6}}}
    told = Watch(band=band)
    said = [told(step, {"pass_rate": x}) for step, x in enumerate((0.5, 0.7, 0.5, 0.7, 0.7, 0.7, 0.7), start=1)]
    assert [len(lines) for lines in said] == [0, 0, 0, 0, 1, 0, 0]
    assert said[4][0].startswith("step 5: pass_rate 0.7 is outside 0.4 to 0.6, the range of 3 healthy runs of small")
    assert told(9, {"pass_rate": 0.0}) == []  # past its end a band says nothing


def test_a_band_is_for_its_own_recipe_whatever_the_seed_and_the_faults(monkeypatch):
    run = recipes.load("grpo", {})
    band = {"recipe": "grpo", "seeds": 3, "run": json.loads(json.dumps(measured(run))), "metrics": {}}
    monkeypatch.setattr(reference, "_bands", lambda: [band])
    assert watch(run).band is band
    assert watch(replace(run, seed=7, steps=9, held_out=None, faults=Faults(lost_syncs=1.0))).band is band
    assert watch(replace(run, max_staleness=2)).band is None
    assert watch(replace(run, engine=Native(precision="float32"))).band is None
    assert watch(replace(run, max_staleness=2))(1, {"pass_rate": 5.0}) == []
    del band["run"]["max_staleness"]  # a field that came after the measurement
    assert watch(run).band is band


def test_the_bands_that_ship_are_of_the_recipes_as_they_are():
    shipped = json.loads(FILE.read_text())
    assert {"demo", "grpo"} <= {band["recipe"] for band in shipped}
    for band in shipped:
        found = watch(recipes.load(band["recipe"], {})).band
        assert found is not None and found["recipe"] == band["recipe"], (
            f"{band['recipe']} is no longer what its band was measured on: python benchmarks/reference.py --recipes {band['recipe']}"
        )
        assert band["seeds"] >= 3 and band["metrics"].keys() <= WATCHED.keys() and "pass_rate" in band["metrics"]
        for line in band["metrics"].values():
            assert len(line["low"]) == len(line["high"]) >= 12
            assert all(low < high for low, high in zip(line["low"], line["high"], strict=True))
    assert FILE.stat().st_size < 100_000
