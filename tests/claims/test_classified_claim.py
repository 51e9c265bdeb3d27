"""The arms of the claim on a learned reward differ in who pays, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import classified
import tuned_page


def runs(**values):
    found = []
    for arm in classified.TUNED.arms:
        found += [{"arm": arm, "rate": at, "seed": 100, "return": -at} for at in classified.TUNED.rates]
        worth = values.get(arm, 20.0)
        found += [{"arm": arm, "rate": 1e-3, "seed": n, "return": worth + n} for n in range(5)]
    return found


def test_verdicts_on_a_learned_reward_follow_the_rule():
    assert tuned_page.rule(classified, runs(online=30.0)).count("| yes |") == 1
    assert tuned_page.rule(classified, runs(recorded=30.0)).count("no: below") == 1
    assert tuned_page.rule(classified, runs()).count("| undecided |") == 1


def test_the_arms_differ_in_what_is_learned_as_failures():
    made = {arm: classified.run_of(arm, 3e-3, 4) for arm in classified.TUNED.arms}
    own, other = made["online"], made["recorded"]
    assert own.update.online == 0.5 and other.update.online == 0.0
    assert replace(other, update=replace(other.update, online=0.5)) == own
    rates = own.update.inside.optimization
    assert rates.learning_rate == rates.critic_learning_rate == 3e-3 and own.seed == 4


def test_the_classifier_pays_in_every_recorded_run():
    for run in campaign.load(classified.RECORD):
        assert 0 < run["paid"] < 1, run
