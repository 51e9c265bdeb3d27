"""Positive amplification, the soft baseline, and the suffix that trains: by hand and at their limits."""

import dataclasses
import math

import pytest
import torch

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.estimators.log_mean_exp_centered import LogMeanExpCentered
from gimbal.advantages.shapings.positive_amplified import PositiveAmplified
from gimbal.objectives.masks.turn_suffix import TurnSuffix
from gimbal.objectives.surrogates.reinforce import Reinforce
from gimbal.records import TrainBatch

REWARD = torch.tensor([1.0, 0.5, 0.0, -0.5, 0.2, 0.2, 0.7], dtype=torch.float64)


def batch(reward=REWARD, group=(0, 0, 0, 0, 5, 5, 2)):
    n = len(reward)
    mask_NS = torch.arange(4) < torch.tensor([4, 3, 4, 1, 2, 4, 4])[:n, None]
    mask_NS[0, 1] = False
    b = TrainBatch(
        mask_NS=mask_NS,
        reward_NS=reward[:, None] * torch.tensor([1.0, 0, 0, 0], dtype=torch.float64),
        group_N=torch.tensor(group[:n]),
        turn_NS=torch.tensor([0, 1, 1, 2]).expand(n, 4),
        facts={"score/restart": torch.tensor([1.0, 1, 0, 0, 2, 2, 9])[:n]},
    )
    return dataclasses.replace(b, advantage_NS=GroupCentered()(b))


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=0)


def test_by_hand():
    close(PositiveAmplified()(batch())[:, 0], [0.5, 3 * 0.25 / 2, -0.25 / 2, -0.75 / 2, 0, 0, 0])
    hopeful = PositiveAmplified(success=math.inf, temperature=0.0)(batch())
    close(hopeful[:, 0], [2.25, 0.75, -0.25, -0.75, 0, 0, 0])
    assert (hopeful[~batch().mask_NS] == 0).all() and (PositiveAmplified()(batch())[~batch().mask_NS] == 0).all()


def test_reduces_to_half_of_reinforce_with_the_group_mean():
    b = batch()
    shaped = dataclasses.replace(b, advantage_NS=PositiveAmplified(factor=1.0, success=math.inf)(b))
    logprob_NS = -torch.rand(*b.shape, dtype=torch.float64).requires_grad_()
    first, second = (Reinforce()(logprob_NS, x).loss_NS.sum() for x in (shaped, b))
    close(first, second.detach() / 2)
    close(*(torch.autograd.grad(loss, logprob_NS)[0] for loss in (first, second / 2)))


def test_full_successes_pull_even_where_all_succeed():
    b = batch(torch.ones(2, dtype=torch.float64), (0, 0))
    close(PositiveAmplified()(b), 0.5 * b.mask_NS.double())


def test_log_mean_exp_by_hand():
    value = LogMeanExpCentered(temperature=0.5)(batch())[:, 0]
    baseline = 0.5 * math.log(sum(math.exp(2 * r) for r in (1.0, 0.5, 0.0, -0.5)) / 4)
    close(value, [1 - baseline, 0.5 - baseline, -baseline, -0.5 - baseline, 0, 0, 0])


def test_log_mean_exp_reduces_to_the_mean_and_to_the_best():
    close(LogMeanExpCentered(temperature=math.inf)(batch()), GroupCentered()(batch()))
    close(LogMeanExpCentered(temperature=1e6)(batch()), GroupCentered()(batch()))
    close(LogMeanExpCentered(temperature=0.0)(batch())[:, 0], [0, -0.5, -1, -1.5, 0, 0, 0])
    close(LogMeanExpCentered(temperature=1e-9)(batch())[:, 0], [0, -0.5, -1, -1.5, 0, 0, 0])


def test_the_suffix_from_the_restart_on_trains():
    b = batch()
    keep = TurnSuffix(restart="score/restart")(b)
    assert keep[0].tolist() == [False, False, True, True] and keep[1].tolist() == [False, True, True, False]
    assert keep[5].tolist() == [False, False, False, True] and not keep[6].any() and not keep[4].any()
    assert torch.equal(keep[2:4], b.mask_NS[2:4])  # no restart: the whole sequence trains
    assert torch.equal(TurnSuffix()(b), b.mask_NS)
    assert torch.equal(TurnSuffix(first=2)(b), (b.turn_NS == 2) & b.mask_NS)


def test_reduces_to_the_whole_sequence_where_nothing_is_restarted():
    b = batch()
    unbranched = dataclasses.replace(b, facts={"score/restart": torch.zeros(7)})
    assert torch.equal(TurnSuffix(restart="score/restart")(unbranched), b.mask_NS)
    assert torch.equal(TurnSuffix()(b), b.mask_NS)


def test_unfit_options_are_refused():
    for make in (lambda: PositiveAmplified(factor=-1.0), lambda: LogMeanExpCentered(temperature=-1.0)):
        with pytest.raises(ValueError, match="0"):
            make()
    with pytest.raises(ValueError, match="number of turns"):
        TurnSuffix(first=-1)
    with pytest.raises(ValueError, match="score/again"):
        TurnSuffix(restart="score/again")(batch())
