"""The verdicts on proposals follow from the record, and the arms have the same critics, data and moves."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import proposals
import tuned_page

from gimbal.policies.best_of import BestOf


def test_the_arms_share_all_but_policy_and_update():
    made = [proposals.run_of(arm, 3e-3, 2) for arm in proposals.TUNED.arms]
    for run in made:
        assert (run.tasks, run.store, run.update.critic) == (made[0].tasks, made[0].store, made[0].update.critic)
        assert (run.update.gamma, run.update.tau) == (0.95, 0.02) and run.update.optimization == made[
            0
        ].update.optimization
        assert run.update.critic.layer_norm and run.update.optimization.learning_rate == 3e-3
    assert isinstance(made[0].policy, BestOf) and made[0].policy.layer_norm and made[0].policy.proposals == 32
    assert made[0].update.expectile == made[1].update.expectile == 0.8 and made[2].update.alpha == 2.0


def test_the_verdicts_follow_the_rule():
    def runs(**by):
        arms = proposals.TUNED.arms
        rows = [(arm, rate, 100, -rate) for arm in arms for rate in proposals.TUNED.rates]
        rows += [(arm, 1e-3, seed, by.get(arm, -300.0) + seed) for arm in arms for seed in range(5)]
        return [dict(zip(("arm", "rate", "seed", "return"), row, strict=True)) for row in rows]

    assert tuned_page.rule(proposals, runs(idql=-200.0)).count("| yes |") == 2
    worse = tuned_page.rule(proposals, runs(fql=-200.0))
    assert worse.count("| undecided |") == 1 and worse.count("| no: below |") == 1
    assert tuned_page.rule(proposals, runs()[:-1]).count("seeds are missing") == 1


def test_the_choice_acts_in_each_recorded_run():
    for run in campaign.load(proposals.RECORD):
        assert run["arm"] != "idql" or (run["gain"] > 0 and run["cloned"] != run["return"])
