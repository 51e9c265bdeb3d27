"""Which decisions the members of a critic let train, and which they let explore."""

import math
from dataclasses import replace

import pytest
import torch

from gimbal.objectives.masks.covariance_mask import CovarianceMask
from gimbal.objectives.masks.disagreement import DisagreementMask
from gimbal.objectives.regularisers.agreement_entropy_bonus import AgreementEntropyBonus
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.records import TrainBatch

G = torch.Generator().manual_seed(0)
INF = float("inf")


def batch(members=2, n=5, s=7):
    mask_NS = torch.arange(s) < torch.tensor([7, 3, 5, 1, 4])[:n, None]
    draw = lambda *more: torch.randn(n, s, *more, generator=G)  # noqa: E731
    return TrainBatch(
        mask_NS=mask_NS,
        behavior_NS=-draw().abs(),
        value_NSM=draw(members),
        entropy_NS=draw().abs().requires_grad_(),
    )


def deviation_NS(b):
    return b.value_NSM.double().std(-1, correction=0)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
@pytest.mark.parametrize("members", [2, 3])
def test_dropped_are_those_on_which_members_agree_most(share, members):
    b = batch(members)
    keep_NS = DisagreementMask(share=share)(b)
    dropped_NS = b.mask_NS & ~keep_NS
    assert dropped_NS.sum() == math.floor(share * 20)
    assert deviation_NS(b)[dropped_NS].max() < deviation_NS(b)[keep_NS].min()


def test_share_0_keeps_all_and_share_1_none():
    b = batch()
    assert torch.equal(DisagreementMask(share=0.0)(b), b.mask_NS) and not DisagreementMask(share=1.0)(b).any()


@pytest.mark.parametrize("members", [1, 2])
def test_members_that_agree_everywhere_drop_the_same_number_and_always_the_same(members):
    b = batch(members)
    b = replace(b, value_NSM=b.value_NSM[..., :1].expand(-1, -1, members))
    keep_NS = DisagreementMask(share=0.2)(b)
    assert (b.mask_NS & ~keep_NS).sum() == 4 and torch.equal(DisagreementMask(share=0.2)(b), keep_NS)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.equal(DisagreementMask(share=0.2)(b.select(order)), keep_NS[order])


def test_the_random_control_is_as_large():
    b = batch()
    b = replace(b, current_NS=b.behavior_NS, proximal_NS=b.behavior_NS, advantage_NS=torch.randn(5, 7, generator=G))
    control = CovarianceMask(share=0.2, low=-INF, high=INF, clip_low=INF, clip_high=INF)
    assert control(b).sum() == DisagreementMask(share=0.2)(b).sum() == 16


def test_share_0_is_the_plain_entropy_bonus():
    b = batch()
    first, second = (part(b.behavior_NS, b) for part in (AgreementEntropyBonus(share=0.0), EntropyBonus(coef=1e-3)))
    assert torch.equal(first.loss_NS, second.loss_NS)
    gradients = [torch.autograd.grad(terms.loss_NS.sum(), b.entropy_NS)[0] for terms in (first, second)]
    assert torch.equal(*gradients) and (gradients[0][b.mask_NS] == -1e-3).all()


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_no_bonus_where_members_disagree_most(share):
    b = batch()
    (gradient_NS,) = torch.autograd.grad(
        AgreementEntropyBonus(share=share)(b.behavior_NS, b).loss_NS.sum(), b.entropy_NS
    )
    spared_NS = b.mask_NS & (gradient_NS == 0)
    assert spared_NS.sum() == math.floor(share * 20)
    rest_NS = b.mask_NS & ~spared_NS
    assert not rest_NS.any() or deviation_NS(b)[spared_NS].min() > deviation_NS(b)[rest_NS].max()


def test_by_hand():
    b = TrainBatch(
        mask_NS=torch.ones(1, 5, dtype=torch.bool),
        behavior_NS=torch.zeros(1, 5),
        value_NSM=torch.tensor([[[0.0, 1.0], [0.0, 0.1], [1.0, 1.5], [0.5, 0.4], [2.0, 0.0]]]),
        entropy_NS=torch.ones(1, 5),
    )
    # deviations .5, .05, .25, .05 (less by rounding), 1
    assert DisagreementMask(share=0.4)(b).tolist() == [[True, False, True, False, True]]
    loss_NS = AgreementEntropyBonus(share=0.2, coef=1.0)(b.behavior_NS, b).loss_NS
    assert loss_NS.tolist() == [[-1.0, -1.0, -1.0, -1.0, 0.0]]


def test_a_share_is_a_share():
    for part in (DisagreementMask, AgreementEntropyBonus):
        with pytest.raises(ValueError, match="share of the decisions"):
            part(share=1.2)
