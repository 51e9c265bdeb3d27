"""The arms of the claim on a reflex differ in what steps in, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import reflex
import tuned_page


def runs(**values):
    found = []
    for arm in reflex.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -at} for at in reflex.TUNED.rates]
        worth = values.get(arm, 20.0)
        found += [own | {"rate": 1e-3, "seed": n, "return": worth + n, "safe": 900 + worth + n} for n in range(5)]
    return found


def test_verdicts_on_the_reflex_follow_the_rule():
    assert tuned_page.rule(reflex, runs(reflex=70.0)).count("| yes |") == 4
    assert tuned_page.rule(reflex, runs()).count("| undecided |") == 4


def test_the_arms_differ_in_what_steps_in():
    made = {arm: reflex.run_of(arm, 3e-3, 4) for arm in reflex.TUNED.arms}
    own = made["reflex"]
    slow = replace(own.policy, within=False, tolerated=0.05)
    assert replace(made["slow"], policy=own.policy) == own and made["slow"].policy == slow
    assert replace(made["none"], policy=own.policy) == own and made["none"].policy == replace(own.policy, tolerated=1.0)
    priced = made["priced"]
    assert priced.policy == made["none"].policy and replace(priced.update, controllers={}) == made["none"].update
    rates = own.update.optimization
    assert rates.learning_rate == rates.critic_learning_rate == own.update.temperature_learning_rate == 3e-3
    assert own.seed == 4 and own.steps * reflex.EACH == 3000 and own.store.update_to_data == 0.5


def test_the_reflex_is_at_work_in_every_recorded_run_that_has_one():
    for run in campaign.load(reflex.RECORD):
        assert (run["acted"] > 0) == (run["arm"] in ("reflex", "slow")), run
        assert ("price" in run) == (run["arm"] == "priced")
