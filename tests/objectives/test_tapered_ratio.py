"""IPA's parts: tapered weights by chunk, the band of discrepancy, the discount by turns."""

import math
from dataclasses import replace

import made
import pytest
import torch

from gimbal.advantages import ReturnToGo
from gimbal.advantages.shapings.turn_discount import TurnDiscount
from gimbal.objectives import MaskedWeight, Reinforce
from gimbal.objectives.masks.discrepancy_band import DiscrepancyBand
from gimbal.objectives.surrogates.tapered_ratio import TaperedRatio
from gimbal.records import TrainBatch


def value_and_gradient(objective, logprob_NS, b):
    x = logprob_NS.clone().requires_grad_()
    loss_NS = objective(x, b).loss_NS
    return loss_NS.detach(), torch.autograd.grad(loss_NS.sum(), x)[0]


def same(first, second, b, other=None, logprob_NS=None):
    for x, y in zip(
        value_and_gradient(first, logprob_NS, b), value_and_gradient(second, logprob_NS, other or b), strict=True
    ):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-6)


def test_one_turn_is_the_sequence_level():
    logprob_NS, b = made.batch()
    one = replace(b, turn_NS=None)
    same(TaperedRatio(), TaperedRatio(level="sequence"), one, logprob_NS=logprob_NS)


def test_a_turn_of_one_decision_is_the_token_level():
    logprob_NS, b = made.batch()
    each = replace(b, turn_NS=torch.arange(6).expand(4, 6))
    same(TaperedRatio(), TaperedRatio(level="token"), each, logprob_NS=logprob_NS)


def test_at_the_anchor_it_is_reinforce():
    logprob_NS, b = made.batch()
    same(TaperedRatio(), Reinforce(), replace(b, proximal_NS=logprob_NS), logprob_NS=logprob_NS)


def test_without_bad_decisions_it_is_reinforce():
    logprob_NS, b = made.batch()
    same(TaperedRatio(), Reinforce(), replace(b, advantage_NS=b.advantage_NS.abs()), logprob_NS=logprob_NS)


def test_by_hand():
    """Turn 0 has become less likely by log-ratios -1 and -3, mean -2; turn 1 more likely."""
    logprob_NS = torch.tensor([[-2.0, -4.0, -1.0], [-2.0, -4.0, -1.0]], dtype=torch.float64)
    b = TrainBatch(
        mask_NS=torch.ones(2, 3, dtype=torch.bool),
        proximal_NS=torch.tensor([[-1.0, -1.0, -2.0]] * 2).double(),
        advantage_NS=torch.tensor([[-1.0] * 3, [1.0] * 3]).double(),
        turn_NS=torch.tensor([[0, 0, 1]] * 2),
    )
    _, gradient = value_and_gradient(TaperedRatio(), logprob_NS, b)
    expected = torch.tensor([[math.exp(-2), math.exp(-2), 1.0], [-1.0, -1.0, -1.0]]).double()
    torch.testing.assert_close(gradient, expected)
    _, gradient = value_and_gradient(TaperedRatio(level="sequence", how="sum"), logprob_NS, b)
    torch.testing.assert_close(gradient[0], torch.full((3,), math.exp(-3)).double())


def test_the_band_agrees_with_masked_weight():
    _, b = made.batch()
    for level, other in (("token", "token"), ("sequence", "geometric")):
        kept = MaskedWeight(level=other, low=0.8, high=1.2, weigh=False)(b)
        assert torch.equal(DiscrepancyBand(level=level, low=0.8, high=1.2)(b), kept > 0)


def test_the_band_keeps_or_drops_whole_turns():
    _, b = made.batch()
    behavior_NS = b.proximal_NS.clone()
    behavior_NS[0, 2] -= 3 * math.log(2.1)  # the mean over its turn of three is log 2.1
    b = replace(b, behavior_NS=behavior_NS)
    keep_NS = DiscrepancyBand()(b)
    assert torch.equal(keep_NS[0], torch.tensor([True, True, False, False, False, True]))
    assert torch.equal(keep_NS[1:], b.mask_NS[1:])
    assert torch.equal(DiscrepancyBand(high=math.inf)(b), b.mask_NS)


def test_gamma_1_leaves_advantages_and_gamma_0_the_last_turn():
    _, b = made.batch()
    kept = b.advantage_NS.where(b.mask_NS, 0)
    assert torch.equal(TurnDiscount(gamma=1.0)(b), kept)
    assert torch.equal(TurnDiscount()(replace(b, turn_NS=None)), kept)
    last = TurnDiscount(gamma=0.0)(b)
    assert torch.equal(last[0] != 0, torch.tensor([False] * 5 + [True]))
    assert torch.equal(last[1] != 0, torch.tensor([False, False, True, True, False, False]))


def test_a_chunks_return_fades_by_turns():
    reward_NS = torch.tensor([[0.0, 0, 0, 0, 0, 2.0]])
    b = TrainBatch(
        mask_NS=torch.ones(1, 6, dtype=torch.bool), reward_NS=reward_NS, turn_NS=torch.tensor([[0, 0, 1, 1, 1, 2]])
    )
    shaped = TurnDiscount(gamma=0.5)(replace(b, advantage_NS=ReturnToGo()(b)))
    torch.testing.assert_close(shaped, torch.tensor([[0.5, 0.5, 1.0, 1.0, 1.0, 2.0]]))


@pytest.mark.parametrize("make", [lambda: DiscrepancyBand(low=2.0), lambda: TurnDiscount(gamma=2.0)])
def test_bad_settings_are_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()
