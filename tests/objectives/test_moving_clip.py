"""ReMix: the moving window, the pull to two anchors, and the schedule of their mix."""

import json
import math
from dataclasses import replace

import made
import pytest
import torch

from gimbal.controllers.staircase import Staircase
from gimbal.objectives import ClippedRatio, KLPenalty
from gimbal.objectives.regularisers.convex_kl import ConvexKL
from gimbal.objectives.surrogates.moving_clip import MovingClip
from gimbal.records import TrainBatch


def value_and_gradient(objective, logprob_NS, b):
    x = logprob_NS.clone().requires_grad_()
    loss = objective(x, b).loss_NS[b.mask_NS].sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def close(first, second):
    for x, y in zip(first, second, strict=True):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-6)


def test_fresh_data_is_clipped_ratio():
    logprob_NS, b = made.batch()
    b = replace(b, behavior_NS=b.proximal_NS)
    close(value_and_gradient(MovingClip(), logprob_NS, b), value_and_gradient(ClippedRatio(), logprob_NS, b))


def test_no_clip_is_the_importance_weighted_surrogate():
    logprob_NS, b = made.batch()
    x = logprob_NS.clone().requires_grad_()
    loss = -((x - b.behavior_NS).exp() * b.advantage_NS)[b.mask_NS].sum()
    expected = loss.detach(), torch.autograd.grad(loss, x)[0]
    close(value_and_gradient(MovingClip(clip_low=math.inf, clip_high=math.inf), logprob_NS, b), expected)


@pytest.mark.parametrize("advantage", [1.5, -1.5])
@pytest.mark.parametrize("update", [-0.4, -0.05, 0.05, 0.4])
def test_one_decision_is_a_weighted_clip_with_bounds_over_its_weight(advantage, update):
    v, lp = 1.6, torch.tensor([[-1.0]]).double()
    b = TrainBatch(
        mask_NS=torch.tensor([[True]]),
        proximal_NS=lp - update,
        behavior_NS=lp - update - math.log(v),
        advantage_NS=torch.tensor([[advantage]]).double(),
    )
    weighted = value_and_gradient(ClippedRatio(clip_low=0.2 / v, clip_high=0.2 / v), lp, b)
    close(value_and_gradient(MovingClip(), lp, b), [v * x for x in weighted])


@pytest.mark.parametrize(
    ("advantage", "update", "loss", "moves"),
    [
        (1.0, 1.05, -2.1, True),  # the centre is 2, so 2.1 lies in [1.8, 2.2]
        (1.0, 1.2, -2.2, False),
        (-1.0, 0.8, 1.8, False),
        (-1.0, 1.2, 2.4, True),  # A < 0 above the window may come back
    ],
)
def test_by_hand(advantage, update, loss, moves):
    lp = torch.tensor([[-1.0]]).double()
    b = TrainBatch(
        mask_NS=torch.tensor([[True]]),
        proximal_NS=lp - math.log(update),
        behavior_NS=lp - math.log(2 * update),
        advantage_NS=torch.tensor([[advantage]]).double(),
    )
    value, gradient = value_and_gradient(MovingClip(), lp, b)
    assert float(value) == pytest.approx(loss, abs=1e-6) and (float(gradient) != 0) == moves


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_mix_1_is_the_penalty_to_the_reference_and_0_to_the_proximal(estimator):
    logprob_NS, b = made.batch()
    penalty = KLPenalty(estimator=estimator)
    close(value_and_gradient(ConvexKL(estimator=estimator), logprob_NS, b), value_and_gradient(penalty, logprob_NS, b))
    near = replace(b, reference_NS=b.proximal_NS)
    close(
        value_and_gradient(ConvexKL(mix=0.0, estimator=estimator), logprob_NS, b),
        value_and_gradient(penalty, logprob_NS, near),
    )


def test_at_both_anchors_nothing_pulls():
    logprob_NS, b = made.batch()
    b = replace(b, reference_NS=logprob_NS, proximal_NS=logprob_NS)
    value, gradient = value_and_gradient(ConvexKL(mix=0.4), logprob_NS, b)
    assert value == 0 and gradient.abs().max() < 1e-12


def test_the_published_schedule():
    rule, state, seen = Staircase(), Staircase().init(), []
    for _ in range(120):
        state = rule.update(json.loads(json.dumps(state)), {})
        seen.append(state["value"])
    expected = [max(1 - 0.1 * math.ceil(max(t - 50, 0) / 10), 0.5) for t in range(1, 121)]
    assert seen == pytest.approx(expected) and min(seen) == 0.5


def test_schedules_that_go_nowhere():
    rule = Staircase(drop=0.0)
    assert rule.update({"value": 1.0, "steps": 99.0}, {})["value"] == 1.0
    for bad in ({"drop": -1.0}, {"every": 0}, {"low": 2.0}):
        with pytest.raises(ValueError, match="Staircase"):
            Staircase(**bad)


def test_a_share_outside_0_and_1_is_refused():
    with pytest.raises(ValueError, match="share"):
        ConvexKL(mix=1.5)
