"""The arms of the claim on prescribed samples collect what they are asked for, and its verdicts follow from the record."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import collected
import tuned_page

from gimbal.environments.tabular import river
from gimbal.ops import philox


def runs(**steps):
    found = []
    for arm in collected.ARMS:
        for rate, seed in [(at, 100) for at in collected.TUNED.rates] + [(0.1, n) for n in range(5)]:
            own = steps.get(arm.split()[0], 900.0) + seed + (0 if rate == 0.1 else 50)
            found.append(
                {"arm": arm, "rate": rate, "seed": seed, "river": own, "put": own, "steps": 2 * own, "cpu": 1.0}
            )
    return found


def test_verdicts_on_collection_follow_the_rule():
    assert collected.TUNED.best(runs(), "paths") == 0.1, "the fewest steps"
    assert tuned_page.rule(collected, runs(chance=9000.0)).count("| yes |") == 2
    assert tuned_page.rule(collected, runs(paths=9000.0)).count("| no: below |") == 6
    assert tuned_page.rule(collected, runs()).count("| undecided |") == 6


@pytest.mark.parametrize("arm", collected.ARMS)
def test_every_arm_stops_with_its_last_sample(monkeypatch, arm):
    monkeypatch.setattr(collected, "EACH", 0)
    assert collected.steps(arm, 0.1, river(), np.random.default_rng(0)) == 0
    monkeypatch.setattr(collected, "EACH", 2)
    least = collected.steps(arm, 0.1, river(), np.random.default_rng(0))
    assert least >= 24, "two of each of 12"
    monkeypatch.setattr(collected, "EACH", 20)
    assert collected.steps(arm, 0.1, river(), np.random.default_rng(0)) > 2 * least


def test_a_recorded_run_comes_again():
    run = next(run for run in campaign.load(collected.RECORD) if (run["arm"], run["seed"]) == ("paths", 0))
    draws = [collected.steps("paths", run["rate"], river(), philox("collected", 0, "river", n)) for n in range(10)]
    assert run["river"] == round(sum(draws) / 10, 1)
