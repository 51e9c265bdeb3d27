"""The arms of the claim on worlds that drift are what they are named after, and its verdicts follow from the record."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import drift
import tuned_page

from gimbal.policies.dynamics import Dynamics

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in drift.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0, "agreement": 0.5}
        found += [own | {"rate": at, "seed": 100, "holds": -abs(at - 3e-3)} for at in drift.TUNED.rates]
        found += [own | {"rate": 3e-3, "seed": n, "holds": ends.get(arm, 50.0) + n} for n in range(5)]
    return found


def test_verdicts_on_drift_follow_the_rule():
    rule = tuned_page.rule(drift, runs(**{"own rollouts": 90.0, "refined": 10.0}))
    assert rule.count("| yes |") == 1 and rule.count("| no: below |") == 1 and rule.count("| undecided |") == 6


def test_the_arms_differ_in_what_they_are_named_after(monkeypatch):
    monkeypatch.setattr(drift, "MOVES", 4)
    found = {arm: drift.learned(arm, 1e-3, 3) for arm in drift.TUNED.arms}
    single, noisy = found["single"], found["single, noisy"]
    assert found["refined"].spec.refine == drift.REFINE and single.spec.refine == ()
    assert torch.equal(single.targets.variance_O, found["own rollouts"].targets.variance_O)
    assert bool((noisy.targets.variance_O[:-1] > 1.5 * single.targets.variance_O[:-1]).all()), "changes have the noise"
    assert torch.equal(noisy.targets.variance_O[-1], single.targets.variance_O[-1]), "rewards do not"
    weights = [x.weights[1].detach() for x in found.values()]
    assert all(not torch.equal(a, b) for k, a in enumerate(weights) for b in weights[:k] if a.shape == b.shape)


def test_a_world_holds_until_it_is_off_by_half_a_spread():
    network = Dynamics(observations=3, actions=1, members=2).load(0)
    action = torch.zeros(2, 200, 1)
    own = network.follow(torch.randn(2, 3, generator=torch.Generator().manual_seed(0)), action)
    seen = torch.cat([own.seen_MNSO[0, :, :1], own.next_MNSO[0]], 1).detach()
    alone = Dynamics(observations=3, actions=1, members=1).load(0)
    alone.load_state_dict({name: x[:1] if x.ndim == 3 else x for name, x in network.state_dict().items()})
    assert drift.holds(alone, seen, action)[0] == 201
    off = seen.clone()
    off[:, 41:] += 10 * seen.flatten(0, 1).std(0)
    assert drift.holds(alone, off, action)[0] < 42 and drift.holds(alone, seen, action)[1][0] == pytest.approx(0)


def test_every_recorded_world_was_measured_by_both():
    for run in campaign.load(drift.RECORD):
        assert 1 <= run["holds"] <= 201 and -1 <= run["agreement"] <= 1
