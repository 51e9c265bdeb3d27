"""The claim on reviews: arms differ in reviews alone, and a share at a number of passes lies on the lines."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import reviews as claim


def test_arms_differ_in_reviews_alone():
    one, other = (claim.run_of(arm, 1e-4, 3) for arm in (claim.WITH, claim.WITHOUT))
    assert one.sampling.reviews == 2 and other.sampling.reviews == 0
    assert replace(one, sampling=other.sampling) == other
    assert one.sampling.threshold == claim.TRAINED and one.engine.precision == "float32"


def test_a_share_at_five_passes_by_hand():
    points = [(0.95, 16.0, 0.0), (0.9, 4.0, 0.0), (0.5, 2.0, 0.0)]
    assert claim.at(points, 10.0) == pytest.approx(0.925) and claim.at(points, 3.0) == pytest.approx(0.7)
    assert claim.at(points, 16.0) == 0.95 and claim.at(points, 1.0) == 0.0
    assert claim.at([(0.95, 6.0, 0.0), (0.97, 4.0, 0.0)], 5.0) == 0.97, "fewer passes may be better"


def test_in_each_recorded_run_reviews_mask_cells():
    runs = campaign.load(claim.RECORD)
    assert len(runs) == claim.TUNED.whole
    for run in runs:
        assert run["again"] > 0.1 and len(run["with"]) == len(run["without"]) == len(claim.THRESHOLDS), run
