"""ExactKL: limiting cases, the estimators whose expectation it is, and a real model against plain torch."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import Shallow

from gimbal.advantages import ReturnToGo
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.policy_gradient import PolicyGradient
from gimbal.objectives import ExactKL, KLPenalty, Reinforce
from gimbal.policies.token import Tokens
from gimbal.records import TrainBatch

MASK = torch.tensor([[True, True, True], [True, True, False]])


def logits(seed):
    return 2 * torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loss_of(part, z_NSV, reference_NSV):
    """(loss of each decision, the gradient of their sum in the logits)"""
    z_NSV = z_NSV.clone().requires_grad_()
    columns = {"logprob_NSV": z_NSV.log_softmax(-1), "reference/logprob_NSV": reference_NSV.log_softmax(-1)}
    terms = part(columns["logprob_NSV"][..., 0], TrainBatch(mask_NS=MASK, facts=columns, live=frozenset(columns)))
    return terms.loss_NS.detach(), torch.autograd.grad(terms.loss_NS.sum(), z_NSV)[0], terms.metrics


def test_of_the_same_policy_it_is_0_without_noise():
    loss_NS, gradient_NSV, _ = loss_of(ExactKL(), logits(0), logits(0) + 3.0)  # logits are the same up to a constant
    assert loss_NS.abs().max() < 1e-15 and gradient_NSV.abs().max() < 1e-15


@pytest.mark.parametrize("coef", [0.0, 0.04, 2.0])
def test_value_and_gradient_by_hand(coef):
    z_NSV, other_NSV = logits(0), logits(1)
    log_NSV, reference_NSV = z_NSV.log_softmax(-1), other_NSV.log_softmax(-1)
    kl_NS = torch.nn.functional.kl_div(reference_NSV, log_NSV, reduction="none", log_target=True).sum(-1)
    loss_NS, gradient_NSV, metrics = loss_of(ExactKL(coef=coef), z_NSV, other_NSV)
    torch.testing.assert_close(loss_NS, (coef * kl_NS).where(MASK, 0))
    torch.testing.assert_close(metrics["kl/ref"], kl_NS.where(MASK, 0))
    by_hand_NSV = coef * log_NSV.exp() * (log_NSV - reference_NSV - kl_NS[..., None])
    torch.testing.assert_close(gradient_NSV, by_hand_NSV.where(MASK[..., None], 0))


def test_it_is_the_expectation_of_the_estimators_and_has_the_expected_gradient_of_k2():
    z_NSV, other_NSV = logits(0), logits(1)
    value_NS, gradient_NSV, _ = loss_of(ExactKL(coef=1.0), z_NSV, other_NSV)

    def expected(estimator):
        z = z_NSV.clone().requires_grad_()
        reference_NSV, values_NS, total = other_NSV.log_softmax(-1), torch.zeros(2, 3).double(), 0.0
        for token in range(5):
            logprob_NS = z.log_softmax(-1)[..., token]
            b = TrainBatch(mask_NS=MASK, reference_NS=reference_NSV[..., token])
            loss_NS = logprob_NS.detach().exp() * KLPenalty(coef=1.0, estimator=estimator)(logprob_NS, b).loss_NS
            values_NS, total = values_NS + loss_NS.detach(), total + loss_NS.sum()
        return values_NS, torch.autograd.grad(total, z)[0]

    for estimator in ("k1", "k3"):
        torch.testing.assert_close(expected(estimator)[0], value_NS)
    torch.testing.assert_close(expected("k2")[1], gradient_NSV)
    assert not torch.allclose(expected("k3")[1], gradient_NSV), "the forward KL's"


@pytest.mark.slow
def test_in_micro_batches_of_a_real_model_it_is_that_of_plain_torch():
    policy, reference = Shallow().load().double(), Shallow().load().double()
    with torch.no_grad():
        for weight in reference.parameters():
            weight *= 1.05
    tokens = Tokens.stack([Tokens.row([1, 2, 3], [4, 5, 6]), Tokens.row([1, 2], [7]), Tokens.row([3], [8, 9])])
    mask_NS = torch.tensor([[True, False, True], [True, False, False], [True, True, False]])
    batch = TrainBatch(mask_NS=mask_NS, reward_NS=torch.zeros(3, 3), decisions=tokens)
    total = torch.zeros(())
    for n in range(3):
        ids = tokens.ids_NL[n, : int(tokens.length_N[n])]
        with torch.no_grad():
            held_LV = (reference.model(ids[None]).logits[0] / 0.7).log_softmax(-1).float()
        log_LV = (policy.model(ids[None]).logits[0].float() / 0.7).log_softmax(-1)
        kl_L = (log_LV.exp() * (log_LV - held_LV)).sum(-1)[int(tokens.prompt_N[n]) - 1 : -1]
        total = total + 0.04 * kl_L[mask_NS[n, : len(kl_L)]].sum() / 5
    wanted = torch.autograd.grad(total, list(policy.parameters()))
    for microbatch in (10**6, 1):
        update = PolicyGradient(
            objective=Reinforce(),
            advantage=ReturnToGo(),
            regularisers=(ExactKL(),),
            optimization=Optimization(microbatch_tokens=microbatch),
        )
        policy.zero_grad()
        learner = Learner(policy, update, reference=reference, temperature=0.7)
        metrics = learner.forward_backward(learner.prepare(batch))
        assert metrics["kl/ref"] == pytest.approx(float(total.detach()) / 0.04, rel=1e-4) != 0
        for weight, gradient in zip(policy.parameters(), wanted, strict=True):
            torch.testing.assert_close(weight.grad, gradient, atol=1e-6, rtol=1e-4)
