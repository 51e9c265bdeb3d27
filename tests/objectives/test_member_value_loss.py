"""Regressions of several values: whom a rollout trains, and which return a head learns."""

from dataclasses import replace

import pytest
import torch

from gimbal.advantages.estimators.gae import GAE
from gimbal.objectives.values.member_value_loss import SHARD, EnsembleValueLoss, MultiHorizonValueLoss
from gimbal.objectives.values.value_loss import ValueLoss
from gimbal.records import TrainBatch

G = torch.Generator().manual_seed(0)


def batch(n=8, s=4, members=2, group_size=4):
    def draw(*more):
        return torch.randn(n, s, *more, generator=G, dtype=torch.float64)

    mask_NS = torch.arange(s) < torch.randint(1, s + 1, (n, 1), generator=G)
    return TrainBatch(
        mask_NS=mask_NS,
        behavior_NS=-draw().abs().float(),
        reward_NS=draw(),
        target_NS=draw(),
        value_NSM=draw(members),
        new_value_NSM=draw(members).requires_grad_(),
        group_N=torch.arange(n) // group_size,
        facts={f"bootstrap/{m}": draw()[:, 0] for m in range(members)},
    )


def single(b, m, target_NS=None):
    """The batch of member m as a critic of one value."""
    target_NS = b.target_NS if target_NS is None else target_NS
    return replace(b, value_NS=b.value_NSM[..., m], new_value_NS=b.new_value_NSM[..., m], target_NS=target_NS)


def loss_NS(part, b):
    return part(torch.zeros(b.shape), b).loss_NS


def same_loss_and_gradient(first, second, b):
    for x, y in ((first, second), *[(torch.autograd.grad(z.sum(), b.new_value_NSM)[0] for z in (first, second))]):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=0)


@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize("clip", [0.1, float("inf")])
def test_one_member_is_value_loss(disjoint, clip):
    b = batch(members=1)
    ensemble = loss_NS(EnsembleValueLoss(disjoint=disjoint, clip=clip), b)
    same_loss_and_gradient(ensemble, loss_NS(ValueLoss(clip=clip), single(b, 0)), b)


def test_on_all_data_the_losses_of_the_members_add():
    b = batch(members=3)
    alone = sum(loss_NS(ValueLoss(clip=0.3), single(b, m)) for m in range(3))
    same_loss_and_gradient(loss_NS(EnsembleValueLoss(disjoint=False, clip=0.3), b), alone, b)


def test_equal_shards_are_the_sum_of_the_means_over_them():
    b = batch(s=1)
    shard_N = EnsembleValueLoss().survey(b)[SHARD]
    means = [(b.new_value_NSM[shard_N == m, 0, m] - b.target_NS[shard_N == m, 0]).square().mean() for m in range(2)]
    torch.testing.assert_close(loss_NS(EnsembleValueLoss(coef=2.0), b).mean(), 2 * sum(means) / 2)


def test_by_hand():
    b = TrainBatch(
        mask_NS=torch.ones(2, 1, dtype=torch.bool),
        behavior_NS=torch.tensor([[-1.0], [-2.0]]),
        target_NS=torch.tensor([[1.0], [1.0]]),
        value_NSM=torch.zeros(2, 1, 2),
        new_value_NSM=torch.tensor([[[0.0, 0.5]], [[0.0, 0.5]]]),
        group_N=torch.zeros(2, dtype=torch.long),
    )
    terms = EnsembleValueLoss()(torch.zeros(2, 1), b)
    # coef 0.5, M = 2, halved squares: 0.5 * 2 * 0.5 * (1 - V)^2
    assert sorted(terms.loss_NS.flatten().tolist()) == [0.125, 0.5]
    assert terms.metrics["value/loss"].tolist() == [[0.3125], [0.3125]]


@pytest.mark.parametrize(("members", "group_size"), [(2, 4), (3, 4), (2, 2), (4, 8), (2, 1), (3, 2)])
def test_each_group_is_dealt_out_evenly(members, group_size):
    b = batch(n=16, members=members, group_size=group_size)
    shard_N = EnsembleValueLoss().survey(b)[SHARD]
    for label in b.group_N.unique():
        count = shard_N[b.group_N == label].bincount(minlength=members)
        assert count.max() - count.min() <= 1 and len(count) == members
    assert len(shard_N.unique()) == members  # also where no group has one for each


def test_shards_hang_on_the_row_and_neither_on_order_nor_on_later_columns():
    b = batch()
    shard_N = EnsembleValueLoss().survey(b)[SHARD]
    order = torch.tensor([5, 2, 7, 0, 1, 3, 6, 4])
    changed = replace(b.select(order), group_N=10 - b.group_N[order], target_NS=b.target_NS.flip(1)[order])
    assert torch.equal(EnsembleValueLoss().survey(changed)[SHARD], shard_N[order])


def test_a_member_learns_from_its_shard_alone():
    b = batch()
    b = b.with_columns(EnsembleValueLoss().survey(b))
    (gradient_NSM,) = torch.autograd.grad(loss_NS(EnsembleValueLoss(), b).sum(), b.new_value_NSM)
    own_NM = torch.nn.functional.one_hot(b.facts[SHARD], 2).bool()
    moved_NSM = gradient_NSM != 0
    assert torch.equal(moved_NSM, own_NM[:, None] & b.mask_NS[..., None])


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_one_horizon_is_ppo_with_its_discount(gamma):
    b = batch(members=1)
    plain = replace(single(b, 0), bootstrap_N=b.facts["bootstrap/0"])
    target_NS = GAE(gamma=gamma, lam=0.95)(plain) + plain.column("value_NS", None)
    many = loss_NS(MultiHorizonValueLoss(gammas=(gamma,), clip=0.2), b)
    same_loss_and_gradient(many, loss_NS(ValueLoss(clip=0.2), single(b, 0, target_NS)), b)


def test_each_head_learns_the_return_of_its_own_discount():
    b = TrainBatch(
        mask_NS=torch.tensor([[True, True, False, True]]),
        reward_NS=torch.tensor([[0.0, 0.0, 9.0, 1.0]]),
        value_NSM=torch.zeros(1, 4, 2),
        new_value_NSM=torch.zeros(1, 4, 2),
    )
    target_SM = MultiHorizonValueLoss(gammas=(0.5, 1.0), lam=1.0).targets(b)[0]
    assert target_SM[b.mask_NS[0]].tolist() == [[0.25, 1.0], [0.5, 1.0], [1.0, 1.0]]
    cut = replace(b, facts={"bootstrap/0": torch.tensor([2.0]), "bootstrap/1": torch.tensor([4.0])})
    target_SM = MultiHorizonValueLoss(gammas=(0.5, 1.0), lam=1.0).targets(cut)[0]
    assert target_SM[b.mask_NS[0]].tolist() == [[0.5, 5.0], [1.0, 5.0], [2.0, 5.0]]
    # coef 0.5, of the mean over two heads of half the squared targets, since all values are 0
    loss = loss_NS(MultiHorizonValueLoss(gammas=(0.5, 1.0), lam=1.0), b)[b.mask_NS]
    assert loss.tolist() == [(0.0625 + 1) / 8, (0.25 + 1) / 8, (1 + 1) / 8]


def test_equal_discounts_keep_heads_equal():
    b = batch()
    b = replace(b, value_NSM=b.value_NSM[..., :1].expand(-1, -1, 2), facts={})
    new_value_NSM = b.new_value_NSM.detach()[..., :1].expand(-1, -1, 2).clone().requires_grad_()
    loss = loss_NS(MultiHorizonValueLoss(gammas=(0.9, 0.9)), replace(b, new_value_NSM=new_value_NSM)).sum()
    (gradient_NSM,) = torch.autograd.grad(loss, new_value_NSM)
    assert torch.equal(gradient_NSM[..., 0], gradient_NSM[..., 1]) and gradient_NSM.any()


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="heads=3"):
        loss_NS(MultiHorizonValueLoss(gammas=(0.5, 0.9, 1.0)), batch())
    for wrong in ({"gammas": ()}, {"gammas": (1.1,)}, {"lam": -1.0}, {"clip": 0.0}):
        with pytest.raises(ValueError, match="MultiHorizonValueLoss"):
            MultiHorizonValueLoss(**wrong)
    with pytest.raises(ValueError, match="inf is off"):
        EnsembleValueLoss(clip=-1.0)
