"""The verdict on learned worlds follows from the record, and a record that says otherwise has another."""

import statistics
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import worlds
import worlds_page


@pytest.mark.parametrize(("kind", "updates"), [("planning", 1800), ("twice", 3600)])
def test_the_verdict_follows_from_the_record(kind: str, updates: int):
    plans = [run for run in campaign.load(worlds.RECORD) if run["kind"] == kind]
    assert len(plans) == len(worlds.SEEDS) and all(run["updates"] == updates for run in plans)
    assert all(run["after"] == pytest.approx(statistics.fmean(run["episodes"]), abs=1) for run in plans)
    good = [run | {"after": -150.0, "cpu": 40.0} for run in plans]
    assert worlds_page.reached(good, kind)
    assert not worlds_page.reached(good[1:], kind), "a seed is missing"
    assert not worlds_page.reached([run | {"cpu": 181.0} for run in good], kind)
    assert not worlds_page.reached([run | {"after": -201.0} for run in good[:3]] + good[3:], kind)
    assert worlds_page.reached([run | {"after": -201.0} for run in good[:1]] + good[1:], kind) == (kind == "planning")


def test_agreement_of_ranks():
    assert worlds_page.spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert worlds_page.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert worlds_page.spearman([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(0.8)
    assert worlds_page.spearman([1, 2, 2, 4], [1, 2, 3, 4]) == pytest.approx(0.9486833)  # ranks 1, 2.5, 2.5 and 4
