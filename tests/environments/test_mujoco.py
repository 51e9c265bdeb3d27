"""MuJoCo environments: inferred sizes, the same bytes again, and a stopped run that resumes to the same bits."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install -e '.[mujoco]'")

from gimbal import recipes
from gimbal.config import Text
from gimbal.environments.gym import Registered
from gimbal.records import Task
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer, run_local


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file where it runs


def run_of(name, steps):
    changes = {"environment": Text(name), "steps": steps, "store.learning_starts": 20, "held_out": Text("none")}
    return replace(recipes.load("sac", changes), threads=1)


@pytest.mark.parametrize(
    ("name", "sizes", "bound"), [("HalfCheetah-v5", (17, 6), 1.0), ("Humanoid-v5", (348, 17), 0.4)]
)
def test_a_run_takes_its_sizes_from_the_body_and_its_weights_arrive(single_thread, name, sizes, bound):
    """Humanoid's observations are some hundreds in size: its first policy is saturated, with log-probabilities of thousands."""
    run = run_of(name, 4)
    assert (run.policy.observations, run.policy.actions) == sizes and run.policy.bound == pytest.approx(bound)
    trainer = Trainer(run)
    try:
        trainer.begin()
        metrics = [trainer.advance()[0] for _ in range(4)]
    finally:
        trainer.close()
    assert metrics[-1]["replay/moves"] > 0 and metrics[0]["sync/gap"] < 0.01


def test_the_same_actions_lead_to_the_same_bytes():
    task, acts = Task(id="0", source="Hopper-v5", seed=3), np.random.default_rng(0).uniform(-1, 1, (40, 3))

    def played():
        live = Registered(source="Hopper-v5").open()
        seen = [live.reset(task, 0).tobytes()]
        for action in acts.astype(np.float32):
            moment = live.step(action)
            seen.append((moment.observation.tobytes(), moment.reward))
            if moment.ended:
                break
        live.close()
        return seen

    assert played() == played() and len(played()) > 5


def test_a_stopped_run_goes_on_to_the_same_bits(single_thread, tmp_path):
    """In the middle of an episode: bodies are brought back by their actions."""
    whole = run_of("HalfCheetah-v5", 8)
    run_local(whole, tmp_path / "whole")
    run_local(replace(whole, steps=4, checkpoint_every=4), tmp_path / "cut")
    run_local(replace(whole, checkpoint_every=4), tmp_path / "cut", resume=True)
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    one, other = ([deterministic(json.loads(line)) for line in found] for found in lines)
    assert one == other and len(one) == 8
