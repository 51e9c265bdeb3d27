"""The arms of the claim on SAR differ in its term alone, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import staggered
import tuned_page

from gimbal.objectives.regularisers.staggered_forcing import StaggeredForcing

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")


def test_arms_differ_in_the_term_alone():
    forced, sar = (staggered.run_of(arm, 3e-4, 2) for arm in staggered.TUNED.arms)
    assert sar == replace(forced, regularisers=(StaggeredForcing(coef=0.01),)) != forced
    assert forced.optimization.learning_rate == 3e-4 and forced.seed == 2


def test_verdicts_follow_the_rule():
    def runs(**ends):
        rows = [(arm, rate, 100, -rate) for arm in staggered.TUNED.arms for rate in staggered.TUNED.rates]
        rows += [
            (arm, 3e-4, seed, ends.get(arm, -0.1) + 0.001 * seed) for arm in ("forced", "sar") for seed in range(5)
        ]
        return [{"arm": arm, "rate": rate, "seed": seed, "nearness": x, "real": x} for arm, rate, seed, x in rows]

    assert tuned_page.rule(staggered, runs(sar=-0.01)).count("| yes |") == 2
    assert tuned_page.rule(staggered, runs(sar=-0.5)).count("| no: below |") == 2
    assert tuned_page.rule(staggered, runs()).count("| undecided |") == 2
    assert tuned_page.rule(staggered, runs()[:-1]).count("seeds are missing") == 2


def test_recorded_runs_are_those_of_the_rule():
    for run in campaign.load(staggered.RECORD):
        assert run["nearness"] < 0 <= run["real"] <= 1 and run["rate"] in staggered.TUNED.rates
