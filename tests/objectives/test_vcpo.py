"""VCPO: sequence weights, the least noisy baseline, and steps scaled by the effective sample size."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal.advantages import GroupCentered, GroupNormalized
from gimbal.advantages.estimators.minimum_variance import MinimumVarianceCentered
from gimbal.controllers.effective_sample_size import EffectiveSampleSize
from gimbal.learning.updates.policy_gradient import score_norm_N
from gimbal.objectives import Reinforce
from gimbal.objectives.surrogates.sequence_weight import SequenceWeight
from gimbal.objectives.surrogates.total_ratio_weight import TotalRatioWeight
from gimbal.ops import SequenceSum
from gimbal.records import TrainBatch
from gimbal.runtime.local import Trainer


def case(s=4, seed=0):
    """Two groups of three."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(6, s, generator=g, dtype=torch.float64)  # noqa: E731
    logprob_NS = -draw().abs()
    return logprob_NS, TrainBatch(
        mask_NS=torch.arange(s) < torch.tensor([[4], [2], [3], [1], [4], [4]]),
        proximal_NS=logprob_NS.clone(),
        behavior_NS=logprob_NS + 0.4 * draw(),
        advantage_NS=draw(),
        reward_NS=draw(),
        group_N=torch.tensor([0, 0, 0, 1, 1, 1]),
        score_norm_N=1 + draw()[:, 0].abs(),
    )


def value_and_gradient(objective, logprob_NS, batch):
    x = logprob_NS.clone().requires_grad_()
    loss = objective(x, batch).loss_NS.sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def close(first, second):
    for x, y in zip(first, second, strict=True):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-6)


def ess(objective, logprob_NS, batch):
    return float(objective(logprob_NS, batch).metrics["ess/sequence"][0, 0])


def test_on_policy_it_is_reinforce_with_all_samples_counting():
    logprob_NS, batch = case()
    batch = replace(batch, behavior_NS=logprob_NS)
    close(value_and_gradient(SequenceWeight(), logprob_NS, batch), value_and_gradient(Reinforce(), logprob_NS, batch))
    assert ess(SequenceWeight(), logprob_NS, batch) == pytest.approx(1)


def test_rows_of_one_decision_are_total_ratio_weight_without_clips():
    logprob_NS, batch = case(s=1)
    other = TotalRatioWeight(clip_low=math.inf, clip_high=math.inf, cap=1.3)
    close(value_and_gradient(SequenceWeight(cap=1.3), logprob_NS, batch), value_and_gradient(other, logprob_NS, batch))


def test_no_cap_is_the_exact_weight_of_the_sequence():
    logprob_NS, batch = case()
    weight_N = torch.where(batch.mask_NS, logprob_NS - batch.behavior_NS, 0).sum(-1).exp()
    _, gradient_NS = value_and_gradient(SequenceWeight(cap=math.inf), logprob_NS, batch)
    expected_NS = torch.where(batch.mask_NS, -weight_N[:, None] * batch.advantage_NS, 0)
    torch.testing.assert_close(gradient_NS, expected_NS)
    assert ess(SequenceWeight(cap=1.0), logprob_NS, batch) == pytest.approx(
        float(weight_N.sum() ** 2 / (6 * weight_N.square().sum()))
    ), "the cap leaves the sample size alone"


def test_the_sample_size_is_of_the_whole_minibatch_and_of_rows_that_count():
    logprob_NS, batch = case()
    surveyed = batch.with_columns(SequenceWeight().survey(replace(batch, current_NS=logprob_NS)))
    one = surveyed.select(torch.tensor([1]))
    whole = ess(SequenceWeight(), logprob_NS, surveyed)
    assert ess(SequenceWeight(), logprob_NS[1:2, : one.shape[1]], one) == whole < 1
    masked = replace(batch, mask_NS=batch.mask_NS & (torch.arange(6) < 3)[:, None])
    half = batch.select(torch.arange(3))
    assert ess(SequenceWeight(), logprob_NS, masked) == pytest.approx(ess(SequenceWeight(), logprob_NS[:3], half))


def test_step_by_hand():
    rule = EffectiveSampleSize()
    assert rule({"ess/sequence": 1.0}) == 1.0
    assert rule({"ess/sequence": 0.25}) == 0.5 and EffectiveSampleSize(power=1.0)({"ess/sequence": 0.25}) == 0.25
    assert EffectiveSampleSize(full=0.5)({"ess/sequence": 0.125}) == 0.5
    for off in (EffectiveSampleSize(full=1e-9), EffectiveSampleSize(power=0.0)):
        assert off({"ess/sequence": 0.01}) == 1.0


def test_one_sample_with_all_the_weight():
    logprob_NS, batch = case()
    behavior_NS = logprob_NS.clone()
    behavior_NS[2, 0] -= 60.0
    share = ess(SequenceWeight(), logprob_NS, replace(batch, behavior_NS=behavior_NS))
    assert EffectiveSampleSize()({"ess/sequence": share}) == pytest.approx((1 / 6) ** 0.5)


@pytest.mark.parametrize("bad", [{"full": 0.0}, {"full": 2.0}, {"power": -1.0}])
def test_bad_constants_of_the_step_are_refused(bad):
    with pytest.raises(ValueError, match="full"):
        EffectiveSampleSize(**bad)


def test_a_signal_that_nobody_reports_is_named():
    with pytest.raises(ValueError, match=r"ess/sequence.*SequenceWeight"):
        EffectiveSampleSize()({"kl/old": 0.1})


def row_advantage(estimator, batch):
    return estimator(replace(batch, mask_NS=torch.ones_like(batch.mask_NS)))[:, 0]


def test_baseline_by_hand():
    """Weights 1, 2, 1 and squared norms 1, 1, 4: b = (0 + 4 + 4 x 3) / 9."""
    batch = TrainBatch(
        mask_NS=torch.ones(3, 1, dtype=torch.bool),
        proximal_NS=torch.zeros(3, 1).double(),
        behavior_NS=-torch.tensor([[1.0], [2.0], [1.0]]).double().log(),
        reward_NS=torch.tensor([[0.0], [1.0], [3.0]]).double(),
        group_N=torch.zeros(3, dtype=torch.long),
        score_norm_N=torch.tensor([1.0, 1.0, 2.0]).double(),
    )
    expected_N = torch.tensor([0.0, 1.0, 3.0]).double() - 16 / 9
    torch.testing.assert_close(row_advantage(MinimumVarianceCentered(), batch), expected_N)
    capped_N = torch.tensor([0.0, 1.0, 3.0]).double() - 13 / 6
    torch.testing.assert_close(row_advantage(MinimumVarianceCentered(cap=1.0), batch), capped_N)


def test_on_policy_the_weights_are_the_squared_norms():
    _, batch = case()
    batch = replace(batch, behavior_NS=batch.proximal_NS)
    square_N, return_N = batch.score_norm_N.square(), batch.return_N
    for rows in (slice(0, 3), slice(3, 6)):
        b = (square_N * return_N)[rows].sum() / square_N[rows].sum()
        found_N = MinimumVarianceCentered()(batch)[rows, 0]
        torch.testing.assert_close(found_N, return_N[rows] - b, atol=1e-6, rtol=0)


def test_equal_norms_on_policy_are_group_centered():
    _, batch = case()
    for norm in (3.0, 0.0):
        even = replace(batch, behavior_NS=batch.proximal_NS, score_norm_N=torch.full((6,), norm).double())
        close([MinimumVarianceCentered()(even)], [GroupCentered()(even)])
        close([MinimumVarianceCentered(scaled=True)(even)], [GroupNormalized()(even)])
        together = replace(even, group_N=torch.zeros(6, dtype=torch.long))
        close([MinimumVarianceCentered(scope="batch")(even)], [GroupCentered()(together)])


def test_it_minimises_the_variance_of_the_weighted_gradient():
    """The second moment sum_i w_i^2 (R_i - b)^2 ||g_i||^2 is least there; the mean does not hang on b."""
    batch = replace(case()[1], group_N=torch.zeros(6, dtype=torch.long))
    weight_N = torch.where(batch.mask_NS, batch.proximal_NS - batch.behavior_NS, 0).sum(-1).exp()

    def second_moment(baseline):
        return float((weight_N * (batch.return_N - baseline) * batch.score_norm_N).square().sum())

    best = float((batch.return_N - MinimumVarianceCentered()(batch)[:, 0])[0])
    assert second_moment(best) < min(second_moment(best + 1e-3), second_moment(best - 1e-3))


def test_weights_past_floating_point_keep_the_baseline_finite():
    _, batch = case()
    far = replace(batch, behavior_NS=batch.proximal_NS - 900.0 * torch.arange(6)[:, None])
    advantage_NS = MinimumVarianceCentered()(far)
    assert torch.isfinite(advantage_NS).all() and advantage_NS[2, 0].abs() < 1e-6  # it has all the weight of its group


def test_the_learner_measures_the_norm_of_the_score():
    run = small_run(
        objective=SequenceWeight(),
        advantage=MinimumVarianceCentered(),
        aggregation=SequenceSum(),
        step_size=EffectiveSampleSize(full=1.0, power=1.0),
    )
    trainer = Trainer(run)
    metrics, _, batch = trainer.advance()
    # Sampler and trainer are one policy here.
    assert metrics["ess/sequence"] == pytest.approx(1, abs=1e-4)
    assert metrics["lr"] == pytest.approx(run.optimization.learning_rate * metrics["ess/sequence"], rel=1e-9)
    learner = trainer.learner
    learner.policy.zero_grad()
    one = batch.select(torch.tensor([0]))
    learner.policy.evaluate(one.decisions).logprob_NS[one.mask_NS].sum().backward()
    squares = [p.grad.square().sum() for p in learner.policy.parameters() if p.grad is not None]
    norm_N = score_norm_N(learner.models, batch)
    assert float(norm_N[0]) == pytest.approx(float(sum(squares).sqrt()), rel=1e-4)


@pytest.mark.slow
def test_stale_data_takes_smaller_steps():
    run = small_run(
        objective=SequenceWeight(),
        advantage=MinimumVarianceCentered(),
        step_size=EffectiveSampleSize(),
        max_staleness=2,
    )
    run = replace(run, ahead="full", optimization=replace(run.optimization, learning_rate=1e-2))
    trainer = Trainer(run)
    seen = [trainer.advance()[0] for _ in range(3)]
    for metrics in seen:
        assert metrics["lr"] == pytest.approx(1e-2 * metrics["ess/sequence"] ** 0.5)
    assert seen[-1]["ess/sequence"] < 0.9 < seen[0]["ess/sequence"]
