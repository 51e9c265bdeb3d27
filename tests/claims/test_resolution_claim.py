"""The arms of the claim on coarser scales differ in what is drawn and for how many steps, and are evaluated alike."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import resolution
import tuned_page

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")


def test_arms_differ_in_the_scales_that_are_drawn_and_in_the_steps():
    full, coarse = (resolution.run_of(arm, 3e-4, 2) for arm in resolution.TUNED.arms)
    assert replace(coarse, sampling=full.sampling, steps=full.steps) == full != coarse
    assert sum(full.sampling.blocks) == 84 and sum(coarse.sampling.blocks) == 20
    assert full.rewards == coarse.rewards and [reward.weight for reward in full.rewards] == [0.0, 1.0, 0.0]


def test_what_is_recorded_is_what_was_asked_for():
    runs = campaign.load(resolution.RECORD)
    for run in runs:
        cells = {resolution.FULL: 84, resolution.COARSE: 20}[run["arm"]]
        assert run["decisions"] == resolution.STEPS[run["arm"]] * 80 * cells
        assert 0 <= run["real"] <= 1 and run["paid"] < 0
    assert tuned_page.rule(resolution, runs).count("|") > 12
