"""Right up, wrong down: by hand, at its limits, and what it does to the logits."""

import dataclasses

import pytest
import torch

from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.objectives.surrogates.reinforce import Reinforce
from gimbal.records import TrainBatch


def batch():
    mask_NS = torch.tensor([[1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 0]], dtype=torch.bool)
    reward_NS = torch.zeros(4, 3, dtype=torch.float64)
    reward_NS[0, 1], reward_NS[2, 2] = 1.0, 0.2
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS, facts={"score/right": torch.tensor([0.0, 1, 0, 0])})


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-12, rtol=0)


def test_by_hand():
    close(SignedOutcome()(batch()), [[0.1, 0.1, 0], [-1, 0, -1], [-1, -1, -1], [0, 0, 0]])
    close(SignedOutcome(threshold=0.1)(batch())[2], [0.1, 0.1, 0.1])
    close(SignedOutcome(right="right")(batch())[:, 0], [-1, 0.1, -1, 0])


def test_lambda_1_reduces_to_reinforce_with_rewards_of_1_and_minus_1():
    b = batch()
    signed_N = torch.tensor([1.0, -1, -1, -1], dtype=torch.float64)
    plain = dataclasses.replace(b, advantage_NS=signed_N[:, None] * b.mask_NS)
    ours = dataclasses.replace(b, advantage_NS=SignedOutcome(positive=1.0)(b))
    logprob_NS = -torch.rand(4, 3, dtype=torch.float64).requires_grad_()
    first, second = (Reinforce()(logprob_NS, x).loss_NS.sum() for x in (ours, plain))
    close(first, second.detach())
    close(*(torch.autograd.grad(loss, logprob_NS)[0] for loss in (first, second)))


@pytest.mark.parametrize("kept, sign", [("positive", 1), ("negative", -1)])
def test_one_weight_at_0_reduces_to_one_kind_of_sample(kept, sign):
    b = batch()
    one = SignedOutcome(**{"positive": 0.0, "negative": 0.0, kept: 1.0})(b)
    right_N = torch.tensor([True, False, False, False])
    close(one, sign * (b.mask_NS & (right_N if sign > 0 else ~right_N)[:, None]).double())


def test_a_wrong_decision_frees_mass_in_proportion_to_probability():
    logits_V = torch.tensor([0.3, -1.0, 2.0, 0.1], dtype=torch.float64, requires_grad=True)
    logprob_V = logits_V.log_softmax(-1)
    mask_NS = torch.ones(1, 1, dtype=torch.bool)
    b = TrainBatch(mask_NS=mask_NS, reward_NS=torch.zeros(1, 1).double(), proximal_NS=logprob_V[2].detach().view(1, 1))
    b = dataclasses.replace(b, advantage_NS=SignedOutcome()(b))
    ClippedRatio()(logprob_V[2].view(1, 1), b).loss_NS.sum().backward()
    p_V = logprob_V.detach().exp()
    close(-logits_V.grad, p_V - torch.nn.functional.one_hot(torch.tensor(2), 4))


def test_refuses_a_sign_of_its_own():
    with pytest.raises(ValueError, match="0 or above"):
        SignedOutcome(negative=-1.0)
    with pytest.raises(ValueError, match="score/nope"):
        SignedOutcome(right="nope")(batch())
