"""The arms of the claims on STAC, on prices and on regret differ in one thing at a time, and their verdicts follow their rules."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import priced
import regret
import stac
import tuned_page

from gimbal.advantages.reward_shaping.priced_cost import PricedCost
from gimbal.critics.actions import ActionValues

pytest.importorskip("gymnasium")


def runs(claim, **values):
    """Tuning at its first rate is the best; the fresh seeds have these values of every figure, 0 otherwise."""
    found = []
    for arm in claim.TUNED.arms:
        names = {claim.TUNED.figure, *(own[2] for own in claim.COMPARED.values() if len(own) > 2)}
        own = {"arm": arm, "cpu": 1.0, "cost": 0.0}
        found += [own | dict.fromkeys(names, -at) | {"rate": at, "seed": 100} for at in claim.TUNED.rates]
        end, best = values.get(arm.replace(": ", "_").replace(" ", "_"), 0.0), claim.TUNED.best(found, arm)
        found += [own | dict.fromkeys(names, end + n / 10) | {"rate": best, "seed": n} for n in range(5)]
    return found


def test_verdicts_follow_the_rules():
    assert tuned_page.rule(stac, runs(stac, sac=5.0)).count("| yes |") == 2, "in what a larger figure of sac answers"
    assert tuned_page.rule(priced, runs(priced, fixed=5.0)).count("| yes |") == 2
    assert tuned_page.rule(regret, runs(regret, river_chance=5.0)).count("| yes |") == 2
    for claim in (stac, priced, regret):
        assert tuned_page.rule(claim, runs(claim)).count("| undecided |") == len(claim.COMPARED)


def test_a_price_that_breaks_the_limit_is_chosen_only_where_all_do():
    told = [
        {"arm": "fixed", "seed": 100, "rate": p, "return": r, "cost": c}
        for p, r, c in ((0.2, 90, 60), (0.6, 50, 4), (2.0, 40, 0))
    ]
    assert priced.TUNED.best(told, "fixed") == 0.6
    assert priced.TUNED.best([run | {"cost": run["cost"] + 6} for run in told], "fixed") == 2.0


def test_the_arms_of_stac_differ_in_the_critic():
    made = {arm: stac.run_of(arm, 3e-3, 4) for arm in stac.TUNED.arms}
    own = made["stac"]
    assert own.update.critic.pessimism == 0.5 and own.update.critic.dropout == 0.01
    for arm, critic in (
        ("neutral", replace(own.update.critic, pessimism=0.0)),
        ("sac", ActionValues(observations=2, actions=2)),
    ):
        assert made[arm].update.critic == critic
        assert replace(made[arm], update=replace(made[arm].update, critic=own.update.critic)) == own
    rates = own.update.optimization
    assert rates.learning_rate == rates.critic_learning_rate == 3e-3 and own.seed == 4


def test_the_arms_of_prices_differ_in_whether_the_price_moves():
    fixed, moved = (priced.run_of(arm, 0.6, 4) for arm in priced.TUNED.arms)
    assert fixed.update.price == moved.update.price == PricedCost(multiplier=0.6) and not fixed.update.controllers
    rule = moved.update.controllers["price.multiplier"]
    assert (rule.initial, rule.limit * 100, rule.signal) == (0.6, priced.MOST, "cost/step")
    assert replace(moved, update=replace(moved.update, controllers={})) == fixed


def test_a_slope_is_that_of_the_power():
    at_T = np.arange(1, 513)
    for power in (0.5, 1.0):
        assert regret.slope(3 * at_T**power, regret.MARKS) == pytest.approx(power)


def test_what_is_recorded_follows():
    for run in campaign.load(stac.RECORD):
        assert ("deviation" in run) == (run["arm"] != "sac")
    for run in campaign.load(priced.RECORD):
        assert run["arm"] == "multiplier" or run["price"] == run["rate"]
    for run in campaign.load(regret.RECORD):
        curve = dict(zip((mark - 1 for mark in regret.MARKS), run["curve"], strict=True))
        assert run["slope"] == pytest.approx(regret.slope(curve, regret.MARKS), abs=0.01)
        assert "chance" not in run["arm"] or run["slope"] == pytest.approx(1, abs=1e-3)
