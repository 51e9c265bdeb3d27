"""Each objective's limiting cases, as its docstring states them: value and gradient. And golden values by hand."""

import dataclasses
import math

import pytest
import torch

from gimbal import ops
from gimbal.objectives import (
    ClippedRatio,
    ClippedWeight,
    EntropyBonus,
    KLPenalty,
    Likelihood,
    MaskedWeight,
    Reinforce,
    SequenceRatio,
    TruncatedWeight,
    ValueLoss,
)
from gimbal.records import TrainBatch

INF = math.inf


def batch(seed=0, n=4, s=6):
    g = torch.Generator().manual_seed(seed)

    def draw():
        return torch.randn(n, s, generator=g, dtype=torch.float64)

    logprob_NS = -draw().abs()
    mask_NS = torch.arange(s) < torch.tensor([[6], [4], [1], [5]])[:n]
    return logprob_NS, TrainBatch(
        mask_NS=mask_NS,
        proximal_NS=logprob_NS + 0.5 * draw(),
        behavior_NS=logprob_NS + 0.5 * draw(),
        reference_NS=logprob_NS + 0.5 * draw(),
        advantage_NS=draw(),
    )


def same(first, second, logprob_NS, b, correction=(None, None)):
    """Equal values (of the sum) and equal gradients for two objectives."""
    results = []
    for objective, weigh in zip((first, second), correction, strict=True):
        x = logprob_NS.clone().requires_grad_()
        weight_NS = 1.0 if weigh is None else weigh(b)
        loss = (objective(x, b).loss_NS * weight_NS * ops.SequenceMean()(b.mask_NS)).sum()
        results.append((loss.detach(), torch.autograd.grad(loss, x)[0]))
    return results


def gradient(objective, logprob_NS, b):
    return same(objective, objective, logprob_NS, b)[0][1]


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def one(advantage, log_ratio=0.0):
    """One rollout of one decision."""
    lp = torch.tensor([[-1.0]], dtype=torch.float64)
    return lp, TrainBatch(
        mask_NS=torch.tensor([[True]]), proximal_NS=lp - log_ratio, advantage_NS=torch.tensor([[advantage]]).double()
    )


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "moves"),
    [
        (1.0, 1.1, -1.1, True),
        (1.0, 1.5, -1.2, False),  # A > 0 beyond the upper bound: clipped, no gradient
        (1.0, 0.5, -0.5, True),  # A > 0 below the lower bound: not clipped, it may come back
        (-1.0, 0.5, 0.8, False),
        (-1.0, 1.5, 1.5, True),
        (-1.0, 4.0, 3.0, False),  # dual clip at 3
    ],
)
def test_clipped_ratio_by_hand(advantage, ratio, loss, moves):
    lp, b = one(advantage, math.log(ratio))
    x = lp.clone().requires_grad_()
    value = ClippedRatio(clip_low=0.2, clip_high=0.2, dual_clip=3.0)(x, b).loss_NS.sum()
    assert value.item() == pytest.approx(loss)
    assert (torch.autograd.grad(value, x)[0].item() != 0) == moves


def test_clipped_ratio_without_bounds_is_the_importance_sampled_surrogate():
    lp, b = batch()
    x = lp.clone().requires_grad_()
    loss_NS = ClippedRatio(clip_low=INF, clip_high=INF)(x, b).loss_NS
    expected_NS = -(x - b.proximal_NS).exp() * b.advantage_NS * b.mask_NS
    close(loss_NS, expected_NS)
    close(torch.autograd.grad(loss_NS.sum(), x, retain_graph=True)[0], torch.autograd.grad(expected_NS.sum(), x)[0])


def test_clipped_ratio_at_the_anchor_has_the_gradient_of_reinforce():
    lp, b = batch()
    b = dataclasses.replace(b, proximal_NS=lp.clone())
    (_, first), (_, second) = same(ClippedRatio(), Reinforce(), lp, b)
    close(first, second)


def test_clip_higher_lets_likelier_good_decisions_grow_further():
    lp, b = one(1.0, math.log(1.25))
    assert gradient(ClippedRatio(clip_high=0.2), lp, b).item() == 0
    assert gradient(ClippedRatio(clip_high=0.28), lp, b).item() < 0


def test_decoupled_ppo_is_ppo_where_the_anchor_is_the_behaviour():
    lp, b = batch()
    b = dataclasses.replace(b, proximal_NS=b.behavior_NS)
    (loss, grad), (loss_2, grad_2) = same(ClippedRatio(), ClippedRatio(), lp, b, (TruncatedWeight(cap=5.0), None))
    close(loss, loss_2)
    close(grad, grad_2)


def test_decoupled_ppo_is_truncated_importance_sampling_where_the_anchor_is_the_policy():
    lp, b = batch()
    b = dataclasses.replace(b, proximal_NS=lp.clone())
    (_, grad), (_, grad_2) = same(
        ClippedRatio(), Reinforce(), lp, b, (TruncatedWeight(cap=5.0), TruncatedWeight(cap=5.0))
    )
    close(grad, grad_2)


def test_reinforce_with_exact_weights_is_the_gradient_of_the_surrogate():
    lp, b = batch()
    b = dataclasses.replace(b, proximal_NS=lp.clone())
    surrogate = ClippedRatio(clip_low=INF, clip_high=INF)
    total = dataclasses.replace(b, proximal_NS=b.behavior_NS)
    x = lp.clone().requires_grad_()
    expected = torch.autograd.grad((surrogate(x, total).loss_NS * ops.SequenceMean()(b.mask_NS)).sum(), x)[0]
    weighted = same(Reinforce(), Reinforce(), lp, b, (TruncatedWeight(cap=INF), None))[0][1]
    close(weighted, expected)


def test_likelihood_is_reinforce_with_advantage_1():
    lp, b = batch()
    b = dataclasses.replace(b, advantage_NS=torch.ones_like(lp))
    (loss, grad), (loss_2, grad_2) = same(Likelihood(), Reinforce(), lp, b)
    close(loss, loss_2)
    close(grad, grad_2)


def test_sequence_ratio_of_one_decision_is_clipped_ratio():
    lp, b = batch(s=1)
    bounds = {"clip_low": 0.2, "clip_high": 0.3}
    (loss, grad), (loss_2, grad_2) = same(SequenceRatio(**bounds), ClippedRatio(**bounds), lp, b)
    close(loss, loss_2)
    close(grad, grad_2)


def test_sequence_ratio_with_constant_advantage_is_the_sequence_form():
    lp, b = batch()
    b = dataclasses.replace(b, advantage_NS=b.advantage_NS[:, :1].expand_as(lp))
    x = lp.clone().requires_grad_()
    mean_N = ((x - b.proximal_NS) * b.mask_NS).sum(-1) / b.mask_NS.sum(-1)
    s_N, a_N = mean_N.exp(), b.advantage_NS[:, 0]
    loss = -torch.minimum(s_N * a_N, s_N.clamp(0.9, 1.1) * a_N).mean()
    expected = torch.autograd.grad(loss, x)[0]
    (value, grad), _ = same(SequenceRatio(clip_low=0.1, clip_high=0.1), Reinforce(), lp, b)
    close(value, loss.detach())
    close(grad, expected)


def test_clipped_weight_at_ratio_1_is_reinforce():
    lp, b = batch()
    b = dataclasses.replace(b, proximal_NS=lp.clone())
    (loss, grad), (loss_2, grad_2) = same(ClippedWeight(), Reinforce(), lp, b)
    close(loss, loss_2)
    close(grad, grad_2)


def test_clipped_weight_without_clamp_and_with_ppos_masks_has_the_gradient_of_clipped_ratio():
    lp, b = batch()
    weight = ClippedWeight(clip_low=INF, clip_high=INF, mask_low=0.2, mask_high=0.3)
    (_, grad), (_, grad_2) = same(weight, ClippedRatio(clip_low=0.2, clip_high=0.3), lp, b)
    close(grad, grad_2)
    assert (grad == 0).sum() > (~b.mask_NS).sum()  # something was clipped


def test_truncated_weight_by_hand_and_in_its_limits():
    b = TrainBatch(
        mask_NS=torch.tensor([[True, True, True]]),
        proximal_NS=torch.tensor([[0.0, -1.0, -2.0]]),
        behavior_NS=torch.tensor([[-1.0, -1.0, -1.0]]),
    )
    close(TruncatedWeight(cap=2.0)(b), torch.tensor([[2.0, 1.0, math.exp(-1)]]))
    close(TruncatedWeight(cap=INF)(b), torch.tensor([[math.e, 1.0, math.exp(-1)]]))
    assert TruncatedWeight(cap=1.0)(b).max() == 1
    close(TruncatedWeight(level="sequence")(b), torch.ones(1, 3))  # the product of e, 1 and 1/e
    close(TruncatedWeight(normalise=True)(b).mean(), torch.tensor(1.0))
    equal = dataclasses.replace(b, behavior_NS=b.proximal_NS)
    close(TruncatedWeight()(equal), torch.ones(1, 3))


def test_masked_weight_by_hand_and_in_its_limits():
    b = TrainBatch(
        mask_NS=torch.tensor([[True, True, True]]),
        proximal_NS=torch.tensor([[1.0, 0.0, -1.0]]),
        behavior_NS=torch.zeros(1, 3),
    )
    close(MaskedWeight()(b), torch.tensor([[math.e, 1.0, 0.0]]))  # 1/e lies below 0.5
    close(MaskedWeight(low=0.0, high=INF)(b), TruncatedWeight(cap=INF)(b))
    close(MaskedWeight(weigh=False)(b), torch.tensor([[1.0, 1.0, 0.0]]))
    close(MaskedWeight(weigh=False, renormalise=True)(b), torch.tensor([[1.5, 1.5, 0.0]]))
    close(MaskedWeight(level="geometric", low=0.99, high=1.01, weigh=False)(b), torch.ones(1, 3))
    close(MaskedWeight(low=0.0, high=INF, veto=0.5)(b), torch.zeros(1, 3))
    equal = dataclasses.replace(b, proximal_NS=torch.zeros(1, 3))
    for level in ("token", "sequence", "geometric"):
        close(MaskedWeight(level=level, veto=1e-4)(equal), torch.ones(1, 3))


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_penalty_at_the_reference(estimator):
    lp, b = batch()
    b = dataclasses.replace(b, reference_NS=lp.clone())
    assert KLPenalty(estimator=estimator)(lp, b).loss_NS.abs().max() == 0
    if estimator != "k1":
        assert gradient(KLPenalty(estimator=estimator), lp, b).abs().max() == 0


def test_kl_estimators_expected_gradients_by_enumeration():
    """k1: nothing. k2: the reverse KL. k3: the forward KL. Exactly, on a softmax of five actions."""
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(5, generator=g, dtype=torch.float64).requires_grad_()
    reference = torch.randn(5, generator=g, dtype=torch.float64).log_softmax(-1)

    def expected(estimator):
        lp = logits.log_softmax(-1)
        b = TrainBatch(mask_NS=torch.ones(5, 1, dtype=torch.bool), reference_NS=reference[:, None])
        loss_N = KLPenalty(coef=1.0, estimator=estimator)(lp[:, None], b).loss_NS[:, 0]
        return torch.autograd.grad((lp.exp().detach() * loss_N).sum(), logits)[0]

    lp = logits.log_softmax(-1)
    reverse = torch.autograd.grad((lp.exp() * (lp - reference)).sum(), logits, retain_graph=True)[0]
    forward = torch.autograd.grad((reference.exp() * (reference - lp)).sum(), logits)[0]
    torch.testing.assert_close(expected("k1"), torch.zeros(5).double(), atol=1e-10, rtol=0)
    torch.testing.assert_close(expected("k2"), reverse, atol=1e-10, rtol=0)
    torch.testing.assert_close(expected("k3"), forward, atol=1e-10, rtol=0)


def test_entropy_bonus_lowers_the_loss_where_entropy_is_high():
    b = TrainBatch(mask_NS=torch.tensor([[True, True]]), entropy_NS=torch.tensor([[0.5, 2.0]]))
    close(EntropyBonus(coef=0.1)(torch.zeros(1, 2), b).loss_NS, torch.tensor([[-0.05, -0.2]]))
    assert EntropyBonus(coef=0.0)(torch.zeros(1, 2), b).loss_NS.abs().max() == 0


@pytest.mark.parametrize(("value", "moves"), [(0.5, True), (1.5, False), (-1.5, True)])
def test_value_loss_is_clipped_only_on_the_way_to_the_target(value, moves):
    b = TrainBatch(mask_NS=torch.tensor([[True]]), value_NS=torch.zeros(1, 1), target_NS=torch.full((1, 1), 2.0))
    v = torch.full((1, 1), value, requires_grad=True)
    loss = ValueLoss(coef=1.0, clip=1.0)(torch.zeros(1, 1), dataclasses.replace(b, new_value_NS=v)).loss_NS.sum()
    plain = ValueLoss(coef=1.0)(torch.zeros(1, 1), dataclasses.replace(b, new_value_NS=v)).loss_NS.sum()
    assert plain.item() == pytest.approx(0.5 * (value - 2) ** 2)
    assert (torch.autograd.grad(loss, v)[0].item() != 0) == moves
