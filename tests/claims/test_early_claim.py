"""The arms of the claim on early stops differ in what cuts episodes off, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import early
import tuned_page


def runs(**values):
    found = []
    for arm in early.TUNED.arms:
        found += [{"arm": arm, "rate": at, "seed": 100, "return": -at} for at in early.TUNED.rates]
        worth = values.get(arm, -40.0)
        found += [{"arm": arm, "rate": 1e-3, "seed": n, "return": worth + n} for n in range(5)]
    return found


def test_verdicts_on_early_stops_follow_the_rule():
    assert tuned_page.rule(early, runs(least=-10.0)).count("| yes |") == 2
    assert tuned_page.rule(early, runs()).count("| undecided |") == 2
    assert tuned_page.rule(early, runs(short=-10.0)).count("| undecided |") == 1


def test_the_arms_differ_in_what_cuts_episodes_off():
    made = {arm: early.run_of(arm, 3e-3, 4) for arm in early.TUNED.arms}
    own = made["least"]
    assert own.engine.early_stop is not None and own.held_out.engine.early_stop is None
    assert replace(made["whole"], engine=own.engine) == own and made["whole"].engine.early_stop is None
    assert replace(made["short"], sampling=own.sampling) == made["whole"] and made["short"].sampling.max_length == 40
    assert {run.held_out.sampling.max_length for run in made.values()} == {1000}
    rates = own.update.optimization
    assert rates.learning_rate == rates.critic_learning_rate == 3e-3 and own.seed == 4


def test_early_stops_are_at_work_in_every_recorded_run_that_has_them():
    for run in campaign.load(early.RECORD):
        assert (run["stopped"] > 0) == (run["arm"] == "least"), run
