"""The ring of past weights: what it holds, when it is filled, and that it survives a checkpoint."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import Shallow, small_run

from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.snapshots import Snapshots
from gimbal.objectives.surrogates.gaussian_trust import GaussianTrust
from gimbal.runtime.local import Trainer


def first(policy):
    return next(iter(policy.parameters())).detach()


def moved(policy, by=1.0):
    with torch.no_grad():
        for weight in policy.parameters():
            weight += by
    return policy


def test_the_newest_come_first_and_the_oldest_leave():
    policy = Shallow().load()
    start = first(policy).clone()
    anchor = Snapshots(count=3, every=2).start(policy)
    for _ in range(9):
        anchor.observe(moved(policy), {})
    ages = [round(float((first(past) - start).mean())) for past in anchor.ring]
    assert ages == [8, 6, 4] and not any(p.requires_grad for past in anchor.ring for p in past.parameters())


def test_past_log_probabilities_are_those_of_past_weights():
    trainer = Trainer(small_run(anchor=Snapshots(count=3), objective=GaussianTrust()))
    batches = []
    for _ in range(4):
        weights = {name: x.clone() for name, x in trainer.learner.policy.state_dict().items()}
        batches.append((weights, trainer.advance()[2]))
    counts = [sum(name.startswith("anchor/") for name in batch.facts) for _, batch in batches]
    assert counts == [0, 1, 2, 2]
    policy, batch = Shallow().load(), batches[3][1]
    for age in (1, 2):
        policy.load_state_dict(batches[3 - age][0])
        with torch.no_grad():
            expected_NS = policy.evaluate(batch.decisions).logprob_NS
        found_NS = batch.column(f"anchor/{age}", None)
        torch.testing.assert_close(found_NS, expected_NS.where(batch.mask_NS, 0), atol=1e-4, rtol=1e-4)


def test_one_snapshot_is_recompute():
    runs = [
        Trainer(small_run(anchor=anchor, objective=GaussianTrust(), optimization=Optimization(minibatches=2)))
        for anchor in (Snapshots(count=1), Recompute())
    ]
    for _ in range(2):
        one, other = (trainer.advance()[0]["loss"] for trainer in runs)
        assert one == pytest.approx(other, abs=1e-6)


@pytest.mark.slow
def test_it_survives_a_save(tmp_path):
    run = small_run(
        anchor=Snapshots(count=3), objective=GaussianTrust(sigma=1e-3), optimization=Optimization(learning_rate=1e-2)
    )
    trainer = Trainer(run)
    trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path, {}))
    resumed.begin()
    assert len(resumed.learner.models.parts["anchor"].ring) == 2 and resumed.learner.models.parts["anchor"].updates == 1
    assert [resumed.advance()[0]["loss"] for _ in range(2)] == [trainer.advance()[0]["loss"] for _ in range(2)]


@pytest.mark.parametrize("bad", [{"count": 0}, {"every": 0}])
def test_bad_constants_are_refused(bad):
    with pytest.raises(ValueError, match="Snapshots"):
        Snapshots(**bad)
