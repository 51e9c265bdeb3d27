"""The reference follows the policy where RenewedReference says so, and where it was is saved with the run."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal.learning.optimization import Optimization
from gimbal.learning.renewal import RenewedReference
from gimbal.objectives.regularisers.convex_kl import ConvexKL
from gimbal.runtime.local import Trainer


def ages(rule, signals):
    """(age, whether it is due) after each step."""
    state, seen = rule.init(), []
    for signal in signals:
        state = rule.update(state, {"kl/ref": float(signal)})
        seen.append((state["age"], state["due"]))
    return seen


def test_it_is_due_after_a_step_too_far_and_after_a_while():
    assert ages(RenewedReference(limit=0.1, most=3), [0.0, 0.2, 0.05, 0.0, 0.0, 0.0]) == [
        (1, 0),
        (2, 1),
        (1, 0),
        (2, 0),
        (3, 1),
        (1, 0),
    ]
    assert not any(due for _, due in ages(RenewedReference(limit=torch.inf, most=0), range(20)))
    assert all(due for _, due in ages(RenewedReference(limit=-1.0), [0.0] * 4))


def run(**changes):
    optimization = Optimization(learning_rate=1e-3)
    return small_run(regularisers=(ConvexKL(coef=0.1, mix=0.5),), optimization=optimization, **changes)


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


def test_before_the_step_the_reference_becomes_the_policy_and_a_resumed_run_goes_on_with_it(single_thread, tmp_path):
    own = run(renewal=RenewedReference(limit=torch.inf, most=2))
    trainer = Trainer(own)
    trainer.begin()
    policies, kl = [], []
    for step in range(5):
        policies.append(weights(trainer.learner.policy))
        kl.append(trainer.advance()[0]["kl/ref"])
        if step == 3:
            kept = trainer.save(tmp_path, {})
    assert torch.equal(weights(trainer.learner.models["reference"]), policies[4])
    assert min(kl[1], kl[3]) > 1e-5 and max(kl[2], kl[4]) < 1e-9
    resumed = Trainer(own, kept)
    resumed.begin()
    assert torch.equal(weights(resumed.learner.models["reference"]), policies[2])
    resumed.advance()
    assert torch.equal(weights(resumed.learner.policy), weights(trainer.learner.policy))
    trainer.close()
    resumed.close()


def test_without_limits_it_is_the_first_policy_for_good(single_thread):
    ends = []
    for renewal in (None, RenewedReference(limit=torch.inf, most=0)):
        trainer = Trainer(run(renewal=renewal))
        trainer.begin()
        for _ in range(2):
            trainer.advance()
        ends.append(weights(trainer.learner.policy))
        trainer.close()
    assert torch.equal(*ends)
