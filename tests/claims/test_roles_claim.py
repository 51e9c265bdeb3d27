"""The verdict on shared against separate weights follows from the record, and a record that says otherwise has another."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import roles
import roles_page


def runs(shared, separate):
    """Tuning runs that choose 2e-4, and a run of each seed."""
    found = [
        {"arm": arm, "rate": rate, "seed": roles.TUNING, "after": 0.5 - abs(rate - 2e-4)}
        for arm in roles.ARMS
        for rate in roles.RATES
    ]
    for arm, after in zip(roles.ARMS, (shared, separate), strict=True):
        found += [{"arm": arm, "rate": 2e-4, "seed": seed, "after": value} for seed, value in enumerate(after)]
    return found


def test_the_interval_of_the_paired_difference_decides():
    apart, noise = [0.50, 0.52, 0.48, 0.51, 0.49], [0.30, 0.33, 0.28, 0.30, 0.29]
    assert "*shared* is better" in roles_page.verdict(runs(apart, noise))
    assert "*separate* is better" in roles_page.verdict(runs(noise, apart))
    assert "not decided" in roles_page.verdict(runs(apart, [0.7, 0.3, 0.5, 0.4, 0.6]))
    assert roles_page.pairs(runs([0.5] * 5, [0.25] * 5)) == [-0.25] * 5


def test_until_all_is_there_nothing_is_decided():
    whole = runs([0.5] * 5, [0.25] * 5)
    assert "4 of 5 pairs" in roles_page.verdict(whole[:-1])
    assert "0 of 5 pairs" in roles_page.verdict(whole[1:])  # a rate was not tried: none is chosen
    jobs = [list(part) for part in roles.left(whole[:-1])]
    assert [job for part in jobs for job in part] == [("separate", 2e-4, 4)]


def test_what_is_measured_is_the_recipe():
    shared, separate = (roles.run_of(arm, 2e-4, 3) for arm in roles.ARMS)
    assert not shared.separate and separate.owners == {"executor": "executor"}
    assert shared.optimization == separate.optimization and shared.optimization.learning_rate == 2e-4
    assert len(shared.held_out.tasks) == roles.HELD_OUT and shared.seed == separate.seed == 3
    recorded = campaign.load(roles.RECORD)
    assert all(run["tokens"] >= roles.TOKENS for run in recorded)
    for run in recorded:
        assert ("grad_norm/executor" in run["moved"]) == (run["arm"] == "separate")
        assert run["mean"] == pytest.approx(sum(run["pass_rate"]) / run["steps"], abs=1e-3)
