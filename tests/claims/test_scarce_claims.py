"""Claims on few good recorded actions and on two flows at once: their arms are what they are named after, verdicts by the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import scarce
import tuned_page
import two_flows

from gimbal.learning.updates.synthetic_replay import TransitionFlow
from gimbal.runtime import compose

pytest.importorskip("gymnasium")
pytest.importorskip("h5py")


def runs(claim, **ends):
    found = []
    for arm in claim.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 1e-3)} for at in claim.TUNED.rates]
        found += [own | {"rate": 1e-3, "seed": n, "return": ends.get(arm, -900.0) + n} for n in range(5)]
    return found


def test_verdicts_on_scarce_data_and_two_flows_follow_the_rule():
    assert tuned_page.rule(scarce, runs(scarce, a2pr=-300.0)).count("| yes |") == 3
    assert tuned_page.rule(scarce, runs(scarce, a2pr=-300.0, td3=-200.0)).count("| no: below |") == 1
    assert tuned_page.rule(scarce, runs(scarce)).count("| undecided |") == 5
    assert tuned_page.rule(two_flows, runs(two_flows, half=-300.0, both=-200.0)).count("| yes |") == 2


def test_arms_on_scarce_data_differ_in_what_they_are_named_after(tmp_path):
    data = scarce.data(tmp_path / "data")
    assert (len(data), data.recording.steps) == (20, 4000)
    found = {arm: scarce.run_of(arm, 3e-3, 4, data) for arm in scarce.ARMS}
    for run in found.values():
        compose.check(run)
        rates = run.update.optimization
        assert rates.learning_rate == rates.critic_learning_rate == 3e-3 and run.seed == 4
    imitations = {arm: found[arm].update.imitation for arm in ("td3", "td3_bc", "td3_bc 100", "a2pr")}
    assert imitations["td3"] is None and imitations["a2pr"].better is not None
    assert imitations["a2pr"].alpha == imitations["td3_bc"].alpha == 20 and imitations["td3_bc 100"].alpha == 100
    drawing = found["synther"]
    assert drawing.update.inside == found["td3_bc"].update and drawing.update.share == 0.5
    # As many moves of the policy's update in each.
    assert found["guided"].update == replace(drawing.update, guidance=3.0)
    moves = {arm: run.steps * run.store.moves for arm, run in found.items()}
    assert moves.pop("synther") == moves.pop("guided") == drawing.update.warmup + 5000 and set(moves.values()) == {5000}


def test_how_far_draws_are_off_is_measured_by_the_pendulum_itself():
    """A flow that draws what the pendulum does is off by nothing: here it draws one state, an action and what comes of them."""
    flow = TransitionFlow(3, 1, (4,), 0)
    for weight in flow.parameters():
        weight.data.zero_()
    flow.units.variance_O.zero_()  # draws are its mean
    import gymnasium
    import torch

    world = gymnasium.make("Pendulum-v1").unwrapped
    world.reset(seed=0)
    world.state = [0.5, -1.0]
    seen = torch.tensor([0.8775826, 0.4794255, -1.0])
    after = torch.from_numpy(world.step([1.5])[0])
    flow.units.mean_O.copy_(torch.cat([seen, torch.tensor([1.5, 0.0]), after - seen, torch.zeros(1)]))
    assert scarce.off_by(flow, 0) < 0.01
    flow.units.mean_O[5:8] = 0  # it draws that nothing moves
    assert scarce.off_by(flow, 0) == pytest.approx(1.0, abs=0.01)


def test_two_flows_clone_parts_that_share_no_episode(tmp_path, monkeypatch):
    monkeypatch.setattr(two_flows, "MOVES", 250)
    run = two_flows.played("half", 1e-3, 0, tmp_path)
    assert (run.policy.proposals, run.policy.share) == (1, 0.5)
    assert Path(run.policy.model).parent.name == "first" and Path(run.policy.beside).parent.name == "second"
    parts = [two_flows.Minari(dataset=str(tmp_path / name / "data")).recording.episodes for name in ("first", "second")]
    seeds = [{episode.seed for episode in part} for part in parts]
    assert [len(part) for part in seeds] == [5, 5] and not seeds[0] & seeds[1]


def test_recorded_runs_on_scarce_data_show_their_mechanisms():
    for run in campaign.load(scarce.RECORD):
        assert (0 < run.get("coder's", 0) < 1) == (run["arm"] == "a2pr")
        assert (0 < run.get("off", 0) < 1) == (run["arm"] in ("synther", "guided"))
        assert (0 < run.get("off_policy", 0) < 0.32) == (run["arm"] == "guided")
