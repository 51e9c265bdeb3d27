"""SeeUPO: ratios of turns, compounded; the learner takes the turns one after another."""

import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import made
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal import ops
from gimbal.advantages import GroupCentered
from gimbal.dataflow.packing import pack
from gimbal.objectives import ClippedRatio, SequenceRatio
from gimbal.objectives.surrogates.turn_sweep import PRESENT, TurnSweep
from gimbal.records import TrainBatch
from gimbal.runtime.local import Trainer


def batch(seed=0):
    """One advantage a row, and a policy that has moved little."""
    logprob_NS, b = made.batch(seed, apart=0.2)
    return logprob_NS, replace(b, advantage_NS=b.advantage_NS[:, :1].expand(4, 6).clone())


def value_and_gradient(objective, logprob_NS, b):
    x = logprob_NS.clone().requires_grad_()
    loss = (objective(x, b).loss_NS * ops.SequenceMean()(objective.counted(b))).sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def close(first, second):
    for x, y in zip(first, second, strict=True):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-6)


def test_one_turn_is_the_clipped_ratio_of_the_sequence():
    logprob_NS, b = batch()
    b = replace(b, turn_NS=None)
    x = logprob_NS.clone().requires_grad_()
    ratio_N = ((x - b.proximal_NS) * b.mask_NS).sum(-1).exp()
    advantage_N = b.advantage_NS[:, 0]
    loss = -torch.minimum(ratio_N * advantage_N, ratio_N.clamp(0.8, 1.2) * advantage_N).mean()
    close(value_and_gradient(TurnSweep(), logprob_NS, b), (loss.detach(), torch.autograd.grad(loss, x)[0]))
    bounds = {"clip_low": 0.05, "clip_high": 0.05}
    close(
        value_and_gradient(TurnSweep(how="mean", **bounds), logprob_NS, b),
        value_and_gradient(SequenceRatio(**bounds), logprob_NS, b),
    )


def test_together_with_a_turn_a_decision_is_clipped_ratio():
    logprob_NS, b = batch()
    b = replace(b, turn_NS=torch.arange(6).expand(4, 6))
    close(
        value_and_gradient(TurnSweep(order="together"), logprob_NS, b),
        value_and_gradient(ClippedRatio(), logprob_NS, b),
    )


def test_together_is_a_sequence_ratio_of_each_turn():
    """Each turn cut out as a row of its own gives the same gradient, up to the row's share."""
    logprob_NS, b = batch()
    sweep = TurnSweep(order="together", how="mean")
    x = logprob_NS.clone().requires_grad_()
    whole = torch.autograd.grad(sweep(x, b).loss_NS.sum(), x)[0]
    pieces = torch.zeros_like(whole)
    for turn in range(3):
        only = replace(b, mask_NS=b.mask_NS & (b.turn_NS == turn), turn_NS=None)
        x = logprob_NS.clone().requires_grad_()
        pieces += torch.autograd.grad(SequenceRatio(clip_low=0.2, clip_high=0.2)(x, only).loss_NS.sum(), x)[0]
    torch.testing.assert_close(whole, pieces, atol=1e-6, rtol=1e-6)


def test_the_compound_by_hand():
    """Log-ratios .1 | .2 .3 | -.9: the turns after the first have e^-.4, after the second e^-.9, cut at .5."""
    zero = torch.zeros(1, 4, dtype=torch.float64)
    log_ratio = torch.tensor([[0.1, 0.2, 0.3, -0.9]]).double()
    b = TrainBatch(
        mask_NS=torch.ones(1, 4, dtype=torch.bool),
        proximal_NS=zero,
        advantage_NS=zero + 2,
        turn_NS=torch.tensor([[0, 1, 1, 2]]),
    )
    wide = {"clip_low": math.inf, "clip_high": math.inf}
    m = torch.tensor([[math.exp(-0.4), 0.5, 0.5, 1.0]]).double()
    r = torch.tensor([[0.1, 0.5, 0.5, -0.9]]).double().exp()
    torch.testing.assert_close(TurnSweep(**wide)(log_ratio, b).loss_NS, -2 * m * r)
    m = torch.tensor([[1.0, math.exp(0.1), math.exp(0.1), math.exp(0.6)]]).double()
    torch.testing.assert_close(TurnSweep(order="forward", **wide)(log_ratio, b).loss_NS, -2 * m * r)


def test_before_any_update_the_compound_is_1():
    logprob_NS, b = batch()
    b = replace(b, proximal_NS=logprob_NS)
    close(
        value_and_gradient(TurnSweep(), logprob_NS, b),
        value_and_gradient(TurnSweep(order="together"), logprob_NS, b),
    )


def test_an_update_is_about_its_own_turn():
    logprob_NS, b = batch()
    stages = list(TurnSweep().stages(b))
    assert [int(facts[PRESENT][0]) for facts in stages] == [2, 1, 0]
    assert [int(facts[PRESENT][0]) for facts in TurnSweep(order="forward").stages(b)] == [0, 1, 2]
    assert list(TurnSweep(order="together").stages(b)) == [{}]
    assert list(TurnSweep().stages(replace(b, mask_NS=torch.zeros_like(b.mask_NS)))) == [{}]
    for facts in stages:
        _, gradient = value_and_gradient(TurnSweep(clip_low=9.0, clip_high=9.0), logprob_NS, b.with_columns(facts))
        own_NS = b.mask_NS & (b.turn_NS == facts[PRESENT][:, None])
        assert torch.equal(gradient != 0, own_NS)


def test_the_learner_takes_the_last_turn_first():
    trainer = Trainer(small_run(objective=TurnSweep(), advantage=GroupCentered()))
    trainer.begin()
    groups, _ = trainer.pipeline.next_batch(0)
    batch = pack(groups)
    turn_NS = (torch.arange(batch.shape[1]) // 4).expand(batch.shape).clone()
    learner, seen = trainer.learner, []
    inner = learner._backward

    def watched(minibatch):
        seen.append((int(minibatch.facts[PRESENT][0]), next(learner.policy.parameters()).detach().clone()))
        return inner(minibatch)

    learner._backward = watched
    learner.step(learner.prepare(replace(batch, turn_NS=turn_NS)))
    assert [turn for turn, _ in seen] == list(range(int(turn_NS[batch.mask_NS].max()), -1, -1))
    assert all(not torch.equal(a, b) for (_, a), (_, b) in pairwise(seen))
    assert learner.version == 1


def test_bounds_that_exclude_1_are_refused():
    with pytest.raises(ValueError, match="hold 1"):
        TurnSweep(compound_low=1.5)
