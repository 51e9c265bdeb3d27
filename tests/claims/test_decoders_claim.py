"""The arms of the claim on GoRL's decoder draw as many batches, its doors open as said, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import decoders
import tuned_page

from gimbal.objectives import KLPenalty
from gimbal.policies.best_of import BestOf

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in decoders.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "figure": -at} for at in decoders.TUNED.rates]
        best = decoders.TUNED.rates[0]
        found += [own | {"rate": best, "seed": n, "figure": ends.get(arm, 0.0) + n} for n in range(5)]
    return found


def test_verdicts_on_decoders_follow_the_rule():
    assert tuned_page.rule(decoders, runs(gorl=9.0)).count("| yes |") == 2
    assert tuned_page.rule(decoders, runs(gorl=-9.0)).count("| no: below |") == 2


def test_all_arms_draw_as_many_batches_with_those_that_were_recorded():
    assert {sum(stages) + len(stages) - 1 for stages in decoders.STAGES.values()} == {18}


def test_stages_differ_in_the_flow_and_in_what_holds_the_noise():
    plain, over = (decoders.run_of(1e-3, 4, flow, 8) for flow in ("", "flow"))
    assert replace(over, policy=plain.policy, regularisers=plain.regularisers) == plain
    assert [type(part) for part in over.regularisers] == [type(plain.regularisers[0]), KLPenalty]
    assert over.policy == replace(plain.policy, flow="flow") and plain.optimization.decay == "constant"


def test_a_try_at_the_open_door_pays_and_ends_and_four_others_end_too():
    env, opened = decoders.Doors(), []
    for seed in range(20):
        env.reset(seed=seed)
        opened.append(env.open)
        assert env.step([env.open + 0.1])[1:4] == (1.0, True, False)
        env.reset(seed=seed)
        assert [env.step([-env.open])[1:4] for _ in range(4)] == [(0.0, False, False)] * 3 + [(0.0, False, True)]
    assert set(opened) == {-0.5, 0.5}


def test_the_clone_of_both_doors_has_both(tmp_path):
    data = decoders.demonstrated(0)
    done = np.concatenate([episode.action_SA for episode in data.episodes])
    assert 0.35 < (done > 0).mean() < 0.65 and np.abs(done).max() <= 1
    decoders.cloned(data, 0, tmp_path)
    policy = replace(decoders.run_of(1e-3, 0, str(tmp_path), 1).policy).load(0)
    noise = torch.randn(2_000, 1, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = policy.done(torch.zeros(2_000, 1), noise)
    near = [float((found - side).abs().lt(decoders.HALF).float().mean()) for side in (-0.5, 0.5)]
    between = float(found.abs().lt(decoders.HALF).float().mean())
    assert min(near) > 1.5 * between, (near, between)
    assert BestOf(observations=1, actions=1, model=str(tmp_path)).load(0).flow is not None


def test_recorded_runs_drew_alike_and_say_where_they_tried():
    found = campaign.load(decoders.RECORD)
    assert len(found) == decoders.TUNED.whole
    for run in found:
        assert run["figure"] == run["sampled"] and 18 * 100 < run["steps"] < 18 * 400 and 0 < run["rarer"] <= 0.5
