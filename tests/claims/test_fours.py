"""The verdicts on digits follow from the record, and a record that says otherwise has others."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import fours


def test_the_verdicts_follow_from_the_record():
    runs = campaign.load(fours.RECORD)
    assert fours.learned(runs) and fours.holds(runs) and fours.hacked(runs)
    assert not any(verdict(runs[2:]) for verdict in (fours.learned, fours.holds, fours.hacked)), "a seed is missing"
    for name, value, verdict in (
        ("fours_after", 0.9, fours.learned),
        ("cpu", 30.1, fours.learned),
        ("distance_after", 3.0, fours.holds),
        ("coverage_after", 0.0, fours.holds),
        ("distance_after", 3.0, fours.hacked),
    ):
        assert not verdict([run | {name: value} if run["arm"] == "kl" and run["seed"] == 3 else run for run in runs]), (
            name
        )
    assert all(run["oldest"] == 1 for run in runs)


def test_two_evaluations_are_recorded_by_the_names_of_their_figures():
    found = campaign.ends({"m": 0.25, "n": 1.0}, {"m": 0.123456, "n": 2.0}, {"one": "m"})
    assert found == {"one_before": 0.25, "one_after": 0.1235}
