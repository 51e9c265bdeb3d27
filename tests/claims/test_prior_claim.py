"""The verdicts on recorded episodes beside one's own follow from the record, and the arms are what they are named after."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import prior
import tuned_page

pytest.importorskip("gymnasium")


def runs(**ends):
    """Tuning runs that choose 1e-3, and five seeds around what each arm ends with."""
    found = []
    for arm in prior.TUNED.arms:
        found += [
            {"arm": arm, "rate": rate, "seed": prior.TUNED.seed, "return": -abs(rate - 1e-3)}
            for rate in prior.TUNED.rates
        ]
        found += [
            {"arm": arm, "rate": 1e-3, "seed": seed, "return": ends.get(arm, -900.0) + seed}
            for seed in prior.TUNED.seeds
        ]
    return [run | {"prior": 0.5, "moves": 1, "cpu": 1.0} for run in found]


def test_verdicts_follow_the_rule():
    assert prior.TUNED.above(runs(rlpd=-200.0), "rlpd", "sac")[1] > 0
    assert tuned_page.rule(prior, runs(rlpd=-200.0)).count("| yes |") == 3
    assert tuned_page.rule(prior, runs(rlpd=-200.0, half=-150.0)).count("| yes |") == 2
    assert tuned_page.rule(prior, runs(rlpd=-898.0)).count("| undecided |") == 3, "seeds overlap"
    assert "seeds are missing" in tuned_page.rule(prior, runs()[:-1])


def test_what_is_left_goes_by_the_best_rate():
    parts = list(prior.TUNED.left([run for run in runs() if run["seed"] == prior.TUNED.seed]))
    assert parts[0] == [] and len(parts[1]) == 20 and {rate for _, rate, _ in parts[1]} == {1e-3}
    assert [len(part) for part in prior.TUNED.left([])] == [16, 0]


def test_one_thing_at_a_time_differs_between_arms():
    rlpd, half, given, sac = (prior.run_of(arm, 1e-3, 3) for arm in prior.TUNED.arms)
    assert rlpd.store == half.store and half.update == given.update == sac.update
    assert given.store == replace(half.store, share=None) and sac.store == replace(half.store, prior=None)
    assert rlpd.update.critic.layer_norm and (rlpd.update.critic.members, rlpd.update.subset) == (10, 2)
    assert rlpd.update.optimization.learning_rate == rlpd.update.optimization.critic_learning_rate == 1e-3


def test_the_data_were_drawn_in_every_recorded_run_that_has_them():
    for run in campaign.load(prior.RECORD):
        assert (run["prior"] > 0) == (run["arm"] != "sac") and run["moves"] == prior.STEPS - 100
