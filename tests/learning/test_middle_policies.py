"""What stands between the sampler and the policy in training: a mix of both, or the very version that sampled."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import Shallow, small_run

from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.interpolated import Interpolated
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.objectives import ClippedRatio
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import TrainBatch
from gimbal.runtime.local import Trainer


def case(seed=0):
    g = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(5, 6, generator=g, dtype=torch.float64)  # noqa: E731
    present_NS = -1 - draw().abs()
    batch = TrainBatch(
        mask_NS=torch.arange(6) < torch.tensor([[6], [4], [1], [5], [6]]),
        behavior_NS=(present_NS + 0.3 * draw()).clamp(max=0),
        advantage_NS=draw(),
    )
    batch = replace(batch, behavior_NS=batch.behavior_NS.where(batch.mask_NS, 0))
    present_NS = present_NS.where(batch.mask_NS, 0)
    return batch, present_NS, lambda rows, policy=None: present_NS


def loss_and_gradient(batch, logprob_NS, clip):
    x = logprob_NS.clone().requires_grad_()
    terms = ClippedRatio(clip_low=math.inf, clip_high=clip)(x, batch)
    return terms, torch.autograd.grad(terms.loss_NS.sum(), x)[0]


@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_no_share_is_recompute_and_nearly_all_is_behavior(mean):
    batch, _, evaluate = case()
    assert torch.equal(Interpolated(share=0.0, mean=mean)(batch, evaluate), Recompute()(batch, evaluate))
    nearly = Interpolated(share=1 - 1e-9, mean=mean)(batch, evaluate)
    torch.testing.assert_close(nearly, Behavior()(batch, evaluate), atol=1e-6, rtol=0)
    assert (nearly[~batch.mask_NS] == 0).all()


def test_the_arithmetic_mean_is_of_probabilities():
    batch, present_NS, evaluate = case()
    found_NS = Interpolated(share=0.3, mean="arithmetic")(batch, evaluate)
    torch.testing.assert_close(found_NS.exp(), 0.3 * batch.behavior_NS.exp() + 0.7 * present_NS.exp())


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_the_mix_only_moves_the_bounds_of_the_one_ratio_there_is(share):
    batch, present_NS, evaluate = case()
    mixed = replace(batch, proximal_NS=Interpolated(share=share)(batch, evaluate))
    single = replace(batch, proximal_NS=batch.behavior_NS)
    eps = 0.1
    (terms, gradient_NS), (other, other_NS) = (
        loss_and_gradient(mixed, present_NS, eps),
        loss_and_gradient(single, present_NS, (1 + eps) ** (1 / share) - 1),
    )
    rho_NS = present_NS - batch.behavior_NS
    torch.testing.assert_close((present_NS - mixed.proximal_NS), share * rho_NS)
    torch.testing.assert_close((mixed.proximal_NS - batch.behavior_NS), (1 - share) * rho_NS)
    assert torch.equal(terms.metrics["clip_ratio/high"], other.metrics["clip_ratio/high"])
    assert terms.metrics["clip_ratio/high"].any() and torch.equal(gradient_NS == 0, other_NS == 0)


def test_a_sampler_alone_has_its_own_anchor():
    with pytest.raises(ValueError, match="Behavior"):
        Interpolated(share=1.0)


def by_hand(trainer, steps):
    """Each step's batch, with the weights of every version so far."""
    weights, batches = [], []
    for _ in range(steps):
        weights.append({name: x.clone() for name, x in trainer.learner.policy.state_dict().items()})
        batches.append(trainer.advance()[2])
    return weights, batches


STALE = {"ahead": "full", "max_staleness": 2, "optimization": Optimization(learning_rate=1e-2, minibatches=2)}


def test_each_decision_is_evaluated_by_the_version_that_drew_it():
    trainer = Trainer(small_run(anchor=SamplingVersion(window=2), **STALE))
    weights, batches = by_hand(trainer, 4)
    assert sorted(trainer.learner.models.parts["anchor"].kept) == [2, 3, 4]
    policy, batch = Shallow().load(), batches[-1]
    versions = batch.version_NS[batch.mask_NS].unique().tolist()
    assert min(versions) < 3
    for version in versions:
        policy.load_state_dict(weights[version])
        with torch.no_grad():
            expected_NS = policy.evaluate(batch.decisions).logprob_NS
        here_NS = batch.mask_NS & (batch.version_NS == version)
        torch.testing.assert_close(batch.proximal_NS[here_NS], expected_NS[here_NS], atol=1e-4, rtol=1e-4)
    # The engine is exact here, so the old policy is the sampler itself.
    torch.testing.assert_close(batch.proximal_NS[batch.mask_NS], batch.behavior_NS[batch.mask_NS], atol=1e-3, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("cache", "exact"), [("recompute", True), ("keep", False)])
def test_a_decision_is_of_its_version_alone_where_the_cache_is_built_anew(cache, exact):
    """Rollouts that new weights overtake: what was kept of the old ones is a gap, and no discrepancy of the engine's."""
    run = small_run(anchor=SamplingVersion(window=2), policy=CausalLM(), sampling=Sampling(max_length=32), **STALE)
    trainer = Trainer(replace(run, engine=replace(run.engine, slots=6, cache=cache), ahead="ready"))
    worst = 0.0
    for _ in range(3):
        batch = trainer.advance()[2]
        first_N = batch.version_NS.masked_fill(~batch.mask_NS, 99).amin(-1)
        overtaken_NS = batch.mask_NS & (batch.version_NS > first_N[:, None])
        gap_NS = (batch.proximal_NS - batch.behavior_NS).abs().where(overtaken_NS, 0)
        worst = max(worst, float(gap_NS.max()))
    assert worst < 1e-4 if exact else worst > 1e-3


def test_versions_may_change_within_a_rollout():
    policy = Shallow().load()
    live = SamplingVersion(window=1).start(policy)
    live.publish(policy, 1)
    old, new = live.kept[0], live.kept[1]
    batch = TrainBatch(
        mask_NS=torch.tensor([[True, True, True], [True, False, False]]),
        version_NS=torch.tensor([[0, 1, 1], [1, 0, 0]]),
    )

    def evaluate(rows, which=None):
        return torch.full(rows.shape, {id(old): -1.0, id(new): -2.0}[id(which)])

    assert live(batch, evaluate).tolist() == [[-1.0, -2.0, -2.0], [-2.0, 0.0, 0.0]]


def test_fresh_data_is_recompute():
    runs = [
        Trainer(small_run(anchor=anchor, optimization=Optimization(minibatches=2)))
        for anchor in (SamplingVersion(), Recompute())
    ]
    for _ in range(2):
        one, other = (trainer.advance()[0]["loss"] for trainer in runs)
        assert one == pytest.approx(other, abs=1e-6)


def test_a_version_that_is_gone_is_an_error():
    trainer = Trainer(small_run(anchor=SamplingVersion(window=0), **STALE))
    with pytest.raises(ValueError, match="raise its window"):
        by_hand(trainer, 3)


@pytest.mark.slow
def test_old_versions_survive_a_save(tmp_path):
    run = small_run(anchor=SamplingVersion(window=2), **STALE)
    trainer = Trainer(run)
    by_hand(trainer, 2)
    resumed = Trainer(run, trainer.save(tmp_path, {}))
    resumed.begin()
    assert sorted(resumed.learner.models.parts["anchor"].kept) == [0, 1, 2]
    assert [resumed.advance()[0]["loss"] for _ in range(2)] == [trainer.advance()[0]["loss"] for _ in range(2)]
