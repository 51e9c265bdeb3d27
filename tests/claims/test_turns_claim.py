"""The verdicts on credit by the turn follow from the record, and the arms differ in what knows turns and in nothing else."""

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import turns
import turns_page

from gimbal.records import TrainBatch
from gimbal.runtime.compose import check

BEST = turns.TUNED.rates[1]
WITHIN = {"group": 0.0, "token": 0.5, "token1": 0.05, "turn": 0.0}


def runs(**means):
    """Tuning runs that choose the middle rate, and five seeds around what each arm is given."""
    found = [
        {"arm": arm, "rate": rate, "seed": turns.TUNED.seed, "mean": 0.3 - abs(rate - BEST)}
        for arm in turns.TUNED.arms
        for rate in turns.TUNED.rates
    ]
    for arm in turns.TUNED.arms:
        for seed in turns.TUNED.seeds:
            mean = means.get(arm, 0.4) + 0.01 * seed
            found.append({"arm": arm, "rate": BEST, "seed": seed, "mean": mean, "after": mean, "within": WITHIN[arm]})
    return found


def test_the_interval_of_the_paired_difference_decides():
    told = turns_page.verdict(runs(turn=0.5)).splitlines()
    assert told[0] == "The mechanism acts in 5 of 5 seeds." and told[-2].count("not decided") == 2
    assert told[4].startswith("| *turn* minus *token* | +0.100 (+0.100 to +0.100), **better**")
    assert turns_page.verdict(runs(turn=0.3)).count("**worse**") == 6
    apart = runs()
    for run in apart:
        if run["arm"] == "turn" and run["seed"] in turns.TUNED.seeds:
            run["mean"] += (-1) ** run["seed"]
    assert "not decided" in turns_page.verdict(apart).splitlines()[4].split("|")[2]
    for run in apart:
        run["within"] = 0.0
    assert "acts in 0 of 5" in turns_page.verdict(apart)


def test_until_all_is_there_nothing_is_decided():
    whole = runs()
    assert "4 of 5 seeds" in turns_page.verdict(whole[:-1])
    assert "0 of 5 seeds" in turns_page.verdict(
        [run for run in whole if run["seed"] in turns.TUNED.seeds]
    )  # no rate is chosen
    assert [job for part in turns.TUNED.left(whole[:-1]) for job in part] == [("turn", BEST, 4)]
    assert [len(list(part)) for part in turns.TUNED.left([])] == [12, 0]
    first = [run for run in whole if run["arm"] != "group"]
    assert turns_page.verdict(first).count("seeds are missing") == 6
    assert [job[0] for part in turns.TUNED.left(first) for job in part] == ["group"] * 3  # rates first


def test_token_and_turn_differ_in_what_knows_turns():
    group, token, token1, turn = (turns.run_of(arm, 1e-4, 3) for arm in turns.TUNED.arms)
    for run in (group, token, token1, turn):
        check(run)
        assert run.optimization.learning_rate == 1e-4 and (run.seed, run.steps) == (3, turns.STEPS)
    apart = {item.name for item in fields(token) if vars(token)[item.name] != vars(turn)[item.name]}
    assert apart == {"advantage", "shaping", "regularisers"} and group.critic is None
    assert (token.advantage.gamma, token.advantage.lam) == (turn.advantage.gamma, turn.advantage.lam) == (1.0, 0.95)
    assert replace(token1, advantage=token.advantage) == token and token1.advantage.lam == 1.0
    assert token.regularisers[0].clip == turn.regularisers[0].clip == 0.2


def test_the_spread_within_turns_by_hand():
    turn_NS, mask_NS = torch.tensor([[0, 0, 1, 1]]), torch.ones(1, 4, dtype=torch.bool)

    def within(*advantage):
        batch = TrainBatch(mask_NS=mask_NS, turn_NS=turn_NS, advantage_NS=torch.tensor([advantage]))
        assert torch.equal(turns.WithinTurn()(batch), batch.advantage_NS)
        return turns.WithinTurn().report(batch)[turns.WITHIN]

    assert within(1.0, 1.0, -1.0, -1.0) == within(2.0, 2.0, 2.0, 2.0) == 0.0
    assert within(1.0, -1.0, 1.0, -1.0) == 1.0
    assert within(3.0, 1.0, -1.0, -3.0) == pytest.approx((1 / 5) ** 0.5)


def test_the_mechanism_was_measured_in_every_recorded_run():
    for run in campaign.load(turns.RECORD):
        assert (run["within"] > 0) == run["arm"].startswith("token") and len(run["pass_rate"]) == turns.STEPS
        assert run["mean"] == pytest.approx(sum(run["pass_rate"]) / turns.STEPS, abs=1e-3)
