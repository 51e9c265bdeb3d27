import pytest
import torch

from gimbal.objectives.regularisers.convex_kl import ConvexKL
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.records import TrainBatch


def case(seed=0):
    g = torch.Generator().manual_seed(seed)
    draw = lambda: -torch.rand(3, 4, generator=g, dtype=torch.float64)  # noqa: E731
    return draw().requires_grad_(), TrainBatch(
        mask_NS=torch.ones(3, 4, dtype=torch.bool), behavior_NS=draw(), proximal_NS=draw(), reference_NS=draw()
    )


def outcome(method, logprob_NS, batch):
    loss_NS = method(logprob_NS, batch).loss_NS
    return loss_NS, torch.autograd.grad(loss_NS.sum(), logprob_NS)[0]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_mix_of_1_is_the_kl_penalty(estimator):
    logprob_NS, batch = case()
    found = outcome(ConvexKL(mix=1.0, coef=0.3, estimator=estimator), logprob_NS, batch)
    expected = outcome(KLPenalty(coef=0.3, estimator=estimator), logprob_NS, batch)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_mix_of_0_is_a_penalty_to_the_proximal_policy_alone():
    logprob_NS, batch = case()
    found = outcome(ConvexKL(mix=0.0, coef=0.3), logprob_NS, batch)
    there = TrainBatch(mask_NS=batch.mask_NS, behavior_NS=batch.behavior_NS, reference_NS=batch.proximal_NS)
    expected = outcome(KLPenalty(coef=0.3), logprob_NS, there)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_the_mix_is_linear_between_both():
    logprob_NS, batch = case()
    half, whole, none = (outcome(ConvexKL(mix=mix), logprob_NS, batch)[0] for mix in (0.5, 1.0, 0.0))
    torch.testing.assert_close(half, (whole + none) / 2, rtol=0, atol=1e-12)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_nothing_pulls_where_all_agree(estimator):
    logprob_NS, batch = case()
    same = TrainBatch(
        mask_NS=batch.mask_NS,
        behavior_NS=batch.behavior_NS,
        proximal_NS=logprob_NS.detach(),
        reference_NS=logprob_NS.detach(),
    )
    loss_NS, gradient_NS = outcome(ConvexKL(estimator=estimator), logprob_NS, same)
    assert not loss_NS.any() and not gradient_NS.any()
