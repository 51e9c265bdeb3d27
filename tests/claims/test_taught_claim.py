"""The arms of the claim on several teachers differ in when PPO comes in, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import taught
import tuned_page

gymnasium = pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in taught.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0, "dip": -50.0 if arm == "cold" else -10.0}
        found += [own | {"rate": at, "seed": 100, "return": -at} for at in taught.TUNED.rates]
        found += [own | {"rate": 2e-3, "seed": n, "return": ends.get(arm, -500.0) + n} for n in range(5)]
    return found


def test_verdicts_on_the_gate_follow_the_rule():
    assert tuned_page.rule(taught, runs(gated=-200.0)).count("| yes |") == 5
    same = tuned_page.rule(taught, runs())
    assert same.count("| undecided |") == 4 and same.count("| yes |") == 1


def test_the_arms_differ_in_what_moves_the_weights_of_ppo_and_imitation():
    made = {arm: taught.run_of(arm, 2e-3, 4, "home") for arm in taught.TUNED.arms}
    own, alone = made["gated"], made["ppo"]
    assert all(replace(made[arm], controllers=own.controllers) == own for arm in ("at once", "cold", "distilled"))
    assert replace(alone, controllers={}, shaping=own.shaping, regularisers=own.regularisers) == made["distilled"]
    assert (alone.shaping[1].factor, alone.regularisers[1].coef) == (1.0, 0.0)
    assert (own.shaping[1].factor, own.regularisers[1].coef, own.regularisers[0].coef) == (0.0, 1.0, 0.5)
    assert set(made["cold"].controllers) - set(own.controllers) == {"regularisers.0.coef"}
    assert own.reference.teachers == {"home/0.5": 0.5, "home/1": 1.0, "home/2": 2.0}


@pytest.mark.parametrize(("arm", "opens"), [("at once", 1), ("cold", taught.COLD)])
def test_without_a_bar_ppo_comes_in_at_its_step(arm, opens):
    moves = taught.controllers(arm)
    states = {path: own.init() for path, own in moves.items()}
    for step in range(1, opens + taught.COMES_IN):
        states = {path: own.update(states[path], {"value/explained": -9.0}) for path, own in moves.items()}
        assert (states["shaping.1.factor"]["value"] > 0) == (step >= opens)
        if arm == "cold":
            assert states["regularisers.0.coef"]["value"] == (0.5 if step >= opens else 0)
    assert states["shaping.1.factor"]["value"] == 1
    assert states["regularisers.1.coef"]["value"] == pytest.approx(0.1)


def test_a_dip_is_what_is_lost_after_the_last_evaluation_before_it():
    curve = [-500.0, -400.0, -300.0, -350.0, -320.0, -200.0]
    assert taught.dip(curve, 4) == -50 and taught.dip(curve, 6) == 120 and taught.dip(curve, 0) == 0


def test_episodes_at_once_are_those_of_the_environment():
    """The same returns as gymnasium's pendulum of each mass, from the same starts."""

    class Fixed:
        def mean_action(self, seen_KO):
            return 3 * (seen_KO[:, 2:3] + seen_KO[:, 1:2]).sin()

    generator, totals = torch.Generator().manual_seed(7), []
    starts = 2 * torch.rand(2, 2, generator=generator) - 1
    for mass in taught.MASSES:
        world = gymnasium.make("Pendulum-v1").unwrapped
        world.m = mass
        for angle, speed in starts.tolist():
            world.reset(seed=0)
            world.state = (angle * torch.pi, speed)
            seen, total = torch.tensor(world._get_obs()), 0.0
            for _ in range(200):
                action = Fixed().mean_action(seen[None])[0].numpy()
                told, reward, *_ = world.step(action)
                seen, total = torch.tensor(told), total + float(reward)
            totals.append(total)
    assert taught.played(Fixed(), 2) == pytest.approx(sum(totals) / len(totals), rel=0.02)


def test_teachers_swing_up_what_they_were_fitted_for_and_no_recorded_gate_stayed_shut():
    still_KO = torch.tensor([[-1.0, 0.0, 1.0], [-1.0, 0.0, -1.0], [1.0, 0.0, 0.1]])
    torch.testing.assert_close(taught.rule(still_KO, 2.0), torch.tensor([[1.0], [-1.0], [-0.2]]))
    for run in campaign.load(taught.RECORD):
        assert ("opened" in run) == (run["arm"] in ("gated", "cold"))
        assert len(run["curve"]) == taught.STEPS
        if "opened" in run:
            assert run["dip"] == taught.dip(run["curve"], run["opened"])
            assert run["arm"] == "gated" or run["opened"] == taught.COLD + 1
