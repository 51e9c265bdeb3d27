"""A bound on age that moves: its rule by hand, and what follows from the record."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

CLAIMS = str(Path(__file__).parents[2] / "claims")
sys.path.insert(0, CLAIMS)

import age
import age_page
import campaign

RUNS = campaign.load(age.RECORD)


def bounds(most, shares):
    rule = age.Bound(most)
    for share in shares:
        rule.update(share)
        yield rule.bound


def test_the_bound_doubles_where_age_costs_little_halves_where_it_costs_much_and_waits_for_its_own_data():
    assert list(bounds(16, [0.1] * 14)) == [1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8]
    assert list(bounds(4, [0.0] * 12))[-1] == 4
    assert list(bounds(16, [0.1] * 4 + [0.6] * 8)) == [1, 2, 2, 4, 4, 4, 4, 2, 2, 1, 1, 1]
    assert list(bounds(16, [0.3] * 9)) == [1] * 9
    assert list(bounds(16, [0.1, 0.3] * 4)) == [1] * 8, "one step of two is not enough"


def test_a_level_is_reached_by_three_steps_together():
    assert age_page.steps_to([0.7, 0.8, 0.9, 0.2], 0.8) == 3
    assert age_page.steps_to([0.7, 0.8, 0.8, 0.8], 0.8) == 4
    assert age_page.steps_to([0.9, 0.9], 0.8) is None


def test_the_regret_follows_from_the_record():
    rows = age_page.regrets(RUNS, 0.8)
    assert all(min(row.values()) == 0 for row in rows.values())
    slower = [{**run, "steps": [[0.0, *row[1:]] for row in run["steps"]]} for run in RUNS]
    assert age_page.largest(slower, 0.8)[age.MOVING] == math.inf
    assert all(max(row[2] for row in run["steps"]) <= run["most"] and not run["dropped"] for run in RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("machine", age.SECONDS)
def test_the_seconds_of_a_step_are_those_of_the_simulator(machine):
    # In a process of its own: a million events, each with its shapes checked, would take minutes.
    told = f"import age; print(age.simulated({machine!r}, 1), age.simulated({machine!r}, 16, 4))"
    done = subprocess.run([sys.executable, "-c", told], cwd=CLAIMS, capture_output=True, text=True, check=True)
    one, admitted = map(float, done.stdout.split())
    assert one == pytest.approx(age.SECONDS[machine][1], abs=1e-3)
    assert admitted == pytest.approx(age.ADMITTED[machine][4], abs=1e-3)
