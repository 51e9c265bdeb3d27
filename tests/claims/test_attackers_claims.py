"""The arms of the claims on attackers and on a red team are what they are named after, and their verdicts follow their rules."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import attacked
import bugs
import campaign
import hijacked
import tuned_page

from gimbal.objectives import EntropyBonus, FlowBalance, Reinforce

pytest.importorskip("gymnasium")


def runs(claim, **values):
    """Tuning at its first rate is the best; the fresh seeds have these values of every figure, 0 otherwise."""
    found, sign = [], -1 if claim is hijacked else 1
    for arm in claim.TUNED.arms:
        names = {claim.TUNED.figure, *(own[2] for own in claim.COMPARED.values() if len(own) > 2)}
        own = {"arm": arm, "cpu": 1.0}
        found += [own | dict.fromkeys(names, -sign * at) | {"rate": at, "seed": 100} for at in claim.TUNED.rates]
        end, best = values.get(arm, 0.0), claim.TUNED.best(found, arm)
        assert best == min(claim.TUNED.rates)
        found += [own | dict.fromkeys(names, end + n / 10) | {"rate": best, "seed": n} for n in range(5)]
    return found


def test_verdicts_follow_the_rules():
    assert tuned_page.rule(attacked, runs(attacked, protected=5.0)).count("| yes |") == 4
    assert tuned_page.rule(bugs, runs(bugs, chance=5.0)).count("| yes |") == 5
    # A larger figure is worse there.
    assert tuned_page.rule(hijacked, runs(hijacked, partner=9.0, turns=9.0, replies=5.0)).count("| yes |") == 3
    for claim in (attacked, bugs, hijacked):
        assert tuned_page.rule(claim, runs(claim)).count("| undecided |") == len(claim.COMPARED)


def test_the_arms_of_the_red_team_differ_as_they_are_named():
    made = {arm: bugs.run_of(arm, 3e-3, 4) for arm in bugs.TUNED.arms}
    assert made["chance"].update.chance == 1 and "plant=4" in made["flow"].tasks.environment
    assert replace(made["best"], update=replace(made["best"].update, chance=1.0)) == made["chance"]
    assert made["reward"].objective == Reinforce() and not made["reward"].regularisers
    for arm, coef in (("entropy .1", 0.1), ("entropy .3", 0.3)):
        assert replace(made[arm], regularisers=()) == made["reward"]
        assert made[arm].regularisers == (EntropyBonus(coef=coef),)
    assert replace(made["flow"], objective=Reinforce()) == made["reward"]
    assert isinstance(made["flow"].objective, FlowBalance)
    for run in made.values():
        assert run.prompts_per_step * run.num_generations == bugs.QUERIES


def test_the_value_that_the_page_names_is_the_equilibriums():
    linprog = pytest.importorskip("scipy.optimize").linprog
    contest, value_S = hijacked.lanes().hijacked(hijacked.PARTNER, hijacked.SHARE), np.zeros(2)
    for _ in range(contest.horizon):
        solved = []
        for q_AB in contest.reward_SAB + contest.transition_SABS @ value_S:
            rows = np.concatenate([-q_AB.T, np.ones((2, 1))], 1)
            found = linprog([0, 0, -1], rows, np.zeros(2), [[1, 1, 0]], [1], [(0, 1), (0, 1), (None, None)])
            solved.append(-found.fun)
        value_S = np.array(solved)
    assert value_S[0] == pytest.approx(hijacked.VALUE, abs=1e-6)


def test_a_bandit_that_meets_one_member_plays_it_and_among_several_finds_the_better():
    played_AKE = np.full((2, 2, 3), 20.0)
    played_AKE[0, 0], played_AKE[1, 1] = 200.0, 180.0
    assert attacked.met(played_AKE[:, :1], [0] * 10, 0) == 200
    assert 150 < attacked.met(played_AKE, [0] * 100, 0) < 200
    assert attacked.met(played_AKE, [1] * 100, 0) > 130


def test_members_and_the_one_policy_have_as_much_training():
    assert attacked.run_of(attacked.Gymnasium(environment=attacked.CART), 72, 1e-3, 0).steps == 72
    assert attacked.STEPS * attacked.MEMBERS == 72
    assert len(attacked.KNOWN) == 5 and attacked.KNOWN[3].endswith("@turn=1")
    assert attacked.UNSEEN[1].endswith("@turn=-0.25,angle=-0.05")


def test_what_is_recorded_follows():
    for run in campaign.load(bugs.RECORD):
        assert 0 <= run["triggers"] <= 320 and run["hits"] <= bugs.LATE
    for run in campaign.load(hijacked.RECORD):
        assert -1e-6 <= run["shortest"] <= run["short"] <= run["longest"]
    for run in campaign.load(attacked.RECORD):
        # Drawn again from 40 episodes: with one member it is that mean but for chance.
        assert run["known"] <= run["best"] + 3 and run["known"] == pytest.approx(np.mean(run["each"]), abs=0.6)
        if run["arm"] == "protected":
            assert run["answers"][0] == "0" and len(run["answers"]) <= attacked.MEMBERS
