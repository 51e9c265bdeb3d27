"""Imitation of what was drawn hotter or colder: by hand and at its limits."""

import dataclasses

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.shapings.tempered_imitation import TemperedImitation
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.objectives.surrogates.reinforce import Reinforce
from gimbal.records import TrainBatch

PLAIN = (1.0, 1, 1, 1, 1, 1)


def batch(temperature=(1.2, 1.2, 1, 1, 0.8, 0.8), reward=(1.0, 0, 1, 0, 1, 0)):
    mask_NS = torch.arange(3) < torch.tensor([3, 2, 1, 3, 2, 3])[:, None]
    reward_NS = torch.zeros(6, 3, dtype=torch.float64)
    reward_NS[:, 0] = torch.tensor(reward)
    b = TrainBatch(
        mask_NS=mask_NS,
        reward_NS=reward_NS,
        group_N=torch.tensor([0, 0, 1, 1, 2, 2]),
        proximal_NS=-torch.rand(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        facts={"temperature": torch.tensor(temperature)},
    )
    return dataclasses.replace(b, advantage_NS=GroupNormalized()(b))


def shaped(b, **coefficients):
    return dataclasses.replace(b, advantage_NS=TemperedImitation(**coefficients)(b))


def loss_and_gradient(objective, b):
    logprob_NS = b.proximal_NS.clone().requires_grad_()
    loss = objective(logprob_NS, b).loss_NS.sum()
    return loss.detach(), torch.autograd.grad(loss, logprob_NS)[0]


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=0)


def test_by_hand():
    b = batch()
    root = 0.5**0.5
    close(shaped(b).advantage_NS[:, 0], [1, 0, root, -root, 0.5, 0])
    close(shaped(b, cold=1.0, threshold=1.0).advantage_NS[:, 0], [0, 0, root, -root, 0, 0])
    assert (shaped(b).advantage_NS[~b.mask_NS] == 0).all()
    assert TemperedImitation().report(b) == {"imitated/hot": 1.0, "imitated/cold": 1.0}
    assert (shaped(b, temperature=1.2).advantage_NS[:2] == b.advantage_NS[:2]).all()


def test_nothing_tempered_reduces_to_grpo():
    b = batch(PLAIN)
    for x, y in zip(loss_and_gradient(ClippedRatio(), shaped(b)), loss_and_gradient(ClippedRatio(), b), strict=True):
        close(x, y)
    without = dataclasses.replace(b, facts={})
    assert torch.equal(shaped(without).advantage_NS, b.advantage_NS)


def test_all_tempered_reduces_to_imitation_of_good_rollouts():
    b = shaped(batch((1.3,) * 6))
    good = b.select(torch.tensor([0, 2, 4]))
    loss, gradient = loss_and_gradient(Reinforce(), b)
    plain, plain_gradient = loss_and_gradient(Likelihood(), good)
    close(loss, plain)
    close(gradient[[0, 2, 4]], plain_gradient)
    assert (gradient[[1, 3, 5]] == 0).all()


def test_a_batch_of_both_is_grpo_plus_imitation():
    mixed = loss_and_gradient(ClippedRatio(), shaped(batch((1, 1, 1, 1, 1.2, 1.2))))
    own = batch(PLAIN)
    own = dataclasses.replace(own, advantage_NS=own.advantage_NS * (torch.arange(6) < 4)[:, None])
    foreign_NS = (own.mask_NS & (torch.arange(6) == 4)[:, None]).double()
    imitated = dataclasses.replace(own, advantage_NS=foreign_NS)
    parts = [loss_and_gradient(ClippedRatio(), b) for b in (own, imitated)]
    close(mixed[0], parts[0][0] + parts[1][0])
    close(mixed[1], parts[0][1] + parts[1][1])


def test_groups_that_all_fail_or_all_succeed_teach_nothing():
    assert (shaped(batch(reward=(0.0,) * 6)).advantage_NS == 0).all()
    assert (shaped(batch(reward=(1.0,) * 6)).advantage_NS == 0).all()


def test_refuses_to_imitate_failures():
    with pytest.raises(ValueError, match="0 or above"):
        TemperedImitation(threshold=-0.1)
