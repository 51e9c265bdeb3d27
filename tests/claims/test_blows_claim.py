"""The arms of the claim on worlds under blows are what they are named after, its figure is 0 at its best, and its verdicts follow."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import blows
import campaign
import tuned_page

from gimbal.policies.diffusion_dynamics import DiffusionDynamicsNetwork
from gimbal.policies.dynamics import DynamicsNetwork


def runs(**ends):
    found = []
    for arm in blows.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0, "one step": -0.1}
        found += [own | {"rate": at, "seed": 100, "closeness": -abs(at - 3e-3)} for at in blows.TUNED.rates]
        found += [own | {"rate": 3e-3, "seed": n, "closeness": ends.get(arm, -0.5) + 0.01 * n} for n in range(5)]
    return found


def test_verdicts_on_blows_follow_the_rule():
    rule = tuned_page.rule(blows, runs(diffusion=-0.1))
    assert rule.count("| yes |") == 1 and rule.count("| no: below |") == 1 and rule.count("| undecided |") == 4


def test_the_arms_under_blows_differ_in_what_they_are_named_after(monkeypatch):
    monkeypatch.setattr(blows, "MOVES", 4)
    monkeypatch.setattr(blows, "LATE", 2)
    found = {arm: blows.learned(arm, 1e-3, 3) for arm in blows.TUNED.arms}
    gaussian, diffusion, own, alone = found.values()
    assert isinstance(gaussian, DynamicsNetwork)
    assert all(isinstance(x, DiffusionDynamicsNetwork) for x in (diffusion, own, alone))
    assert torch.equal(gaussian.targets.variance_O, diffusion.targets.variance_O)
    assert blows.OWN["own rollouts"].spread == 1 and blows.OWN["distance alone"].spread == 0
    weights = [x.weights[1].detach() for x in (diffusion, own, alone)]
    assert not any(torch.equal(a, b) for a, b in ((weights[0], weights[1]), (weights[1], weights[2])))


def test_blows_come_by_their_chance_and_size_and_without_them_it_is_the_pendulum(monkeypatch):
    g = torch.Generator().manual_seed(0)
    still = torch.zeros(20_000), torch.zeros(20_000)
    seen, reward = blows.played(still, torch.zeros(20_000, 1), g)
    speed = seen[:, 1, 2]
    assert sorted(set(speed.tolist())) == [-3.0, 0.0, 3.0] and reward.abs().max() < 1e-9
    assert (speed != 0).float().mean().item() == pytest.approx(0.1, abs=0.01)
    gymnasium = pytest.importorskip("gymnasium")
    monkeypatch.setattr(blows, "CHANCE", 0.0)
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=3)
    angle, spin = (torch.tensor([x], dtype=torch.float32) for x in env.state)
    action = blows.pushes(1, 12, g)
    seen, reward = blows.played((angle, spin), action, g)
    for number, push in enumerate(action[0]):
        after, earned, *_ = env.step([float(push)])
        torch.testing.assert_close(seen[0, number + 1], torch.tensor(after), atol=1e-4, rtol=0)
        assert reward[0, number].item() == pytest.approx(earned, abs=1e-3)


def test_the_energy_distance_is_0_between_a_set_and_itself_and_grows_with_how_far_they_are():
    one = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    assert blows.apart(one, one) == pytest.approx(0, abs=1e-5)
    assert 0 < blows.apart(one, one + 0.5) < blows.apart(one, one + 1)


def test_every_recorded_world_under_blows_was_measured():
    for run in campaign.load(blows.RECORD):
        assert run["closeness"] < 0 and run["one step"] < 0
