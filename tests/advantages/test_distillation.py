"""On-policy distillation: golden values, and gradients by enumeration of all answers of a tiny policy."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from gimbal.advantages import Distillation
from gimbal.records import TrainBatch

LENGTH, WORDS = 2, 3


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6, check_dtype=False)


def graded(proximal, reference, mask=None, rewards=None):
    proximal_NS = torch.tensor(proximal, dtype=torch.float64)
    return TrainBatch(
        mask_NS=torch.ones_like(proximal_NS, dtype=torch.bool) if mask is None else torch.tensor(mask),
        proximal_NS=proximal_NS,
        reference_NS=torch.tensor(reference, dtype=torch.float64),
        reward_NS=None if rewards is None else torch.tensor(rewards, dtype=torch.float64),
    )


def test_by_hand():
    batch = graded([[-1.0, -2.0, -5.0]], [[-3.0, -1.5, 0.0]], [[True, True, False]])
    close(Distillation()(batch), torch.tensor([[-2.0, 0.5, 0.0]]))
    close(Distillation(gamma=0.5)(batch), torch.tensor([[-1.75, 0.5, 0.0]]))
    close(Distillation(gamma=1.0)(batch), torch.tensor([[-1.5, 0.5, 0.0]]))
    assert Distillation().report(batch) == {"distillation/kl": pytest.approx(0.75)}
    # Of the sampler the first was twice as likely: of the policy's own samples it would be half as many.
    told = Distillation().report(
        replace(batch, behavior_NS=batch.proximal_NS + torch.tensor([[math.log(2), 0.0, 0.0]]))
    )
    assert told == {"distillation/kl": pytest.approx((0.5 * 2.0 - 0.5) / 1.5)}


def test_policy_is_teacher_teaches_nothing_and_rewards_do_not_enter():
    close(Distillation(gamma=1.0)(graded([[-1.0, -2.0]], [[-1.0, -2.0]])), torch.zeros(1, 2))
    plain, paid = (graded([[-1.0, -2.0]], [[-2.0, -1.0]], rewards=rewards) for rewards in (None, [[5.0, -7.0]]))
    close(Distillation()(plain), Distillation()(paid))


def test_its_range():
    with pytest.raises(ValueError, match=r"Distillation.gamma is 1.5; it must be in \[0, 1\]"):
        Distillation(gamma=1.5)


@pytest.fixture
def policies():
    """Logits of the first word, and of the second after each first: of a policy and of its teacher."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda: torch.randn(1 + WORDS, WORDS, dtype=torch.float64, generator=generator)  # noqa: E731
    return draw().requires_grad_(), draw()


def everything(logits):
    """log-probabilities [N, S] of both words in each of the nine answers."""
    logp = logits.log_softmax(-1)
    return torch.stack(
        [torch.stack([logp[0, a], logp[1 + a, b]]) for a, b in itertools.product(range(WORDS), repeat=2)]
    )


def expected_gradient(policies, gamma):
    policy, teacher = policies
    logprob_NS, reference_NS = everything(policy), everything(teacher)
    batch = TrainBatch(
        mask_NS=torch.ones(WORDS**LENGTH, LENGTH, dtype=torch.bool),
        proximal_NS=logprob_NS.detach(),
        reference_NS=reference_NS,
    )
    chance_N = logprob_NS.detach().sum(-1).exp()
    loss = -(chance_N[:, None] * Distillation(gamma=gamma)(batch) * logprob_NS).sum()
    return torch.autograd.grad(loss, policy)[0]


def test_gamma_1_is_the_gradient_of_the_kl_of_whole_answers(policies):
    policy, teacher = policies
    logprob_NS, reference_NS = everything(policy), everything(teacher)
    kl = (logprob_NS.sum(-1).exp() * (logprob_NS - reference_NS).sum(-1)).sum()
    close(expected_gradient(policies, 1.0), torch.autograd.grad(kl, policy)[0])


def test_gamma_0_is_the_gradient_of_the_kl_of_each_decision_in_its_context(policies):
    policy, teacher = policies
    logp, reference = policy.log_softmax(-1), teacher.log_softmax(-1)
    chance_C = torch.cat([torch.ones(1, dtype=torch.float64), logp[0].exp().detach()])  # of each context
    kl = (chance_C[:, None] * logp.exp() * (logp - reference)).sum()
    close(expected_gradient(policies, 0.0), torch.autograd.grad(kl, policy)[0])
