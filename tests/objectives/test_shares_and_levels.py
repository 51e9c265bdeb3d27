"""What objectives report of themselves, and at which level weights are taken: golden values by hand."""

import math

import pytest
import torch

from gimbal.objectives import ClippedRatio, ClippedWeight, KLPenalty, MaskedWeight, SequenceRatio, TruncatedWeight
from gimbal.records import TrainBatch

RATIO_NS = torch.tensor([[0.5, 0.5, 1.5, 1.5, 1.0]])
ADVANTAGE_NS = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0]])


def at_ratios(ratio_NS, advantage_NS):
    """logprob and a batch in which exp(logprob - proximal) is as given."""
    logprob_NS = torch.full_like(ratio_NS, -1.0)
    proximal_NS = logprob_NS - ratio_NS.log()
    return logprob_NS, TrainBatch(
        mask_NS=torch.ones_like(ratio_NS, dtype=torch.bool), proximal_NS=proximal_NS, advantage_NS=advantage_NS
    )


def test_clip_shares_count_the_side_that_lost_its_gradient():
    metrics = ClippedRatio()(*at_ratios(RATIO_NS, ADVANTAGE_NS)).metrics
    assert metrics["clip_ratio/low"].tolist() == [[0, 1, 0, 0, 0]]  # A < 0 below the lower bound
    assert metrics["clip_ratio/high"].tolist() == [[0, 0, 1, 0, 0]]  # A > 0 above the upper bound


@pytest.mark.parametrize("objective", [ClippedRatio(), ClippedWeight(), SequenceRatio()])
def test_kl_old_is_r_minus_1_minus_log_r(objective):
    metrics = objective(*at_ratios(RATIO_NS, ADVANTAGE_NS)).metrics
    torch.testing.assert_close(metrics["kl/old"], RATIO_NS - 1 - RATIO_NS.log(), atol=1e-6, rtol=0)


def test_clipped_weight_clips_the_weight_on_both_sides_whatever_the_advantage():
    logprob_NS, b = at_ratios(RATIO_NS, ADVANTAGE_NS)
    logprob_NS = logprob_NS.requires_grad_()
    terms = ClippedWeight(clip_low=0.2, clip_high=0.3)(logprob_NS, b)
    (gradient,) = torch.autograd.grad(terms.loss_NS.sum(), logprob_NS)
    torch.testing.assert_close(-gradient * ADVANTAGE_NS, torch.tensor([[0.8, 0.8, 1.3, 1.3, 1.0]]))
    assert terms.metrics["clip_ratio/low"].tolist() == [[1, 1, 0, 0, 0]]
    assert terms.metrics["clip_ratio/high"].tolist() == [[0, 0, 1, 1, 0]]
    assert terms.metrics["clip_ratio/masked"].sum() == 0


def test_clipped_weight_reports_what_it_masks():
    masking = ClippedWeight(mask_low=0.2, mask_high=0.2)
    assert masking(*at_ratios(RATIO_NS, ADVANTAGE_NS)).metrics["clip_ratio/masked"].tolist() == [[0, 1, 1, 0, 0]]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_ref_is_k3_whatever_the_estimator(estimator):
    mask_NS = torch.tensor([[True]])
    b = TrainBatch(mask_NS=mask_NS, reference_NS=torch.tensor([[math.log(2.0)]]))
    kl_NS = KLPenalty(estimator=estimator)(torch.zeros(1, 1), b).metrics["kl/ref"]
    assert kl_NS.item() == pytest.approx(2 - 1 - math.log(2.0))


def gap(*log_weight_S):
    """One rollout with these log(proximal / behavior), and one masked decision that must not count."""
    log_NS = torch.tensor([[*log_weight_S, 99.0]])
    mask_NS = torch.tensor([[True] * len(log_weight_S) + [False]])
    return TrainBatch(mask_NS=mask_NS, proximal_NS=log_NS, behavior_NS=torch.zeros_like(log_NS))


def test_a_sequence_weight_is_the_product_of_its_decisions():
    expected = torch.tensor([[math.exp(0.6)] * 3 + [0.0]])
    for correction in (TruncatedWeight(level="sequence"), MaskedWeight(level="sequence", low=0.0, high=2.0)):
        torch.testing.assert_close(correction(gap(0.1, 0.2, 0.3)), expected)
    assert TruncatedWeight(level="sequence")(gap(0.5, 0.5, 0.5))[0, 0] == 2  # exp(1.5), capped
    assert (MaskedWeight(level="sequence", low=0.0, high=2.0)(gap(0.5, 0.5, 0.5)) == 0).all()  # dropped


def test_a_geometric_weight_is_the_mean_of_its_decisions_in_the_logarithm():
    geometric = MaskedWeight(level="geometric", low=0.5, high=2.0)
    torch.testing.assert_close(geometric(gap(0.1, 0.2, 0.3)), torch.tensor([[math.exp(0.2)] * 3 + [0.0]]))
    assert (geometric(gap(0.5, 0.5, 0.5))[0, :3] > 0).all()  # exp(0.5), where the product is dropped
    assert (MaskedWeight(level="geometric", low=0.999, high=1.001, weigh=False)(gap(0.1, 0.2, 0.3)) == 0).all()


@pytest.mark.parametrize("make", [TruncatedWeight, MaskedWeight])
def test_an_unknown_level_is_refused(make):
    # Set past the type checker, which in tests refuses the value before the method can.
    correction = make()
    object.__setattr__(correction, "level", "sentence")
    with pytest.raises(ValueError, match="level is 'sentence'"):
        correction.__post_init__()
