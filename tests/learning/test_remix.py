"""ReMix put together: what it is on fresh data, and the reference that is renewed."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import Shallow, small_run

from gimbal.dataflow.packing import pack
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio, KLPenalty
from gimbal.objectives.regularisers.convex_kl import ConvexKL
from gimbal.objectives.surrogates.moving_clip import MovingClip
from gimbal.runtime.local import Trainer


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


def test_fresh_data_and_the_reference_alone_are_grpo_with_a_kl_penalty():
    updates = Optimization(learning_rate=1e-2, epochs=2, minibatches=2)
    run = small_run(optimization=updates)
    trainer = Trainer(run)
    trainer.begin()
    batch = pack(trainer.pipeline.next_batch(0)[0])
    ends = []
    for parts in (
        {"objective": MovingClip(), "regularisers": (ConvexKL(coef=0.1, mix=1.0),)},
        {"objective": ClippedRatio(), "regularisers": (KLPenalty(coef=0.1),)},
    ):
        learner = Learner(Shallow().load(), replace(run, **parts), reference=Shallow().load())
        prepared = learner.prepare(batch)
        # The engine's own rounding would be a discrepancy.
        learner.step(replace(prepared, behavior_NS=prepared.proximal_NS))
        ends.append(weights(learner.policy))
    trainer.close()
    torch.testing.assert_close(*ends, atol=1e-6, rtol=0)
    assert not torch.equal(ends[0], weights(Shallow().load()))


def kl_run(**changes):
    optimization = Optimization(learning_rate=1e-2)
    return small_run(regularisers=(ConvexKL(coef=0.1, mix=0.5),), optimization=optimization, **changes)


def test_a_renewed_reference_is_the_policy_of_that_version():
    trainer = Trainer(kl_run(reference_resets=(2,)))
    trainer.begin()
    kl, policies = [], []
    for _ in range(4):
        policies.append(weights(trainer.learner.policy))
        kl.append(trainer.advance()[0]["kl/ref"])
    assert torch.equal(weights(trainer.learner.models["reference"]), policies[2])
    assert kl[1] > 1e-4 and kl[2] < 1e-9 < kl[3]


def test_a_moving_reference_is_the_average_of_the_policies():
    trainer = Trainer(kl_run(reference_rate=0.25))
    trainer.begin()
    average = weights(trainer.learner.policy)
    for _ in range(3):
        trainer.advance()
        average = average + 0.25 * (weights(trainer.learner.policy) - average)
    torch.testing.assert_close(weights(trainer.learner.models["reference"]), average)


def test_until_then_nothing_is_changed():
    plain, renewed = (Trainer(kl_run(reference_resets=at)) for at in ((), (2,)))
    for same in (True, True, False):
        first, second = (trainer.advance()[0]["loss"] for trainer in (plain, renewed))
        ends = [weights(trainer.learner.policy) for trainer in (plain, renewed)]
        assert first == pytest.approx(second, abs=1e-9) or not same
        assert torch.equal(*ends) == same


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps, moves", [(1, {"reference_resets": (2,)}), (3, {"reference_resets": (2,)}), (2, {"reference_rate": 0.25})]
)
def test_the_reference_survives_a_save(tmp_path, steps, moves):
    run = kl_run(**moves)
    trainer = Trainer(run)
    trainer.begin()
    for _ in range(steps):
        trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path, {}))
    resumed.begin()
    for _ in range(2):
        first, second = (t.advance()[0]["kl/ref"] for t in (trainer, resumed))
        assert first == second
    assert torch.equal(weights(trainer.learner.policy), weights(resumed.learner.policy))
