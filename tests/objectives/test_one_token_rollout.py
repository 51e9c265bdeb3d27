"""OneTokenRollout: what it reduces to, what the draws of the paper tend to, and a column of whole distributions."""

import pytest
import torch

from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.objectives.surrogates.one_token_rollout import OneTokenRollout
from gimbal.policies.token import CausalLM, Tokens
from gimbal.records import TrainBatch

TARGET = torch.tensor([[2, 0, 1], [4, 3, 0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def logits(seed=0):
    g = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(2, 3, 5, generator=g, dtype=torch.float64)).requires_grad_()


def loss_of(objective, z_NSV):
    log_NSV = z_NSV.log_softmax(-1)
    b = TrainBatch(mask_NS=MASK, facts={"logprob_NSV": log_NSV}, live=frozenset({"logprob_NSV"}))
    loss = objective(log_NSV.gather(-1, TARGET[..., None])[..., 0], b).loss_NS.sum()
    return loss.detach(), torch.autograd.grad(loss, z_NSV)[0]


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def own(z_NSV):
    return z_NSV.log_softmax(-1).gather(-1, TARGET[..., None])[..., 0]


def test_without_reward_for_others_at_temperature_1_it_is_likelihood_weighted_by_probability():
    z_NSV = logits()
    expected = -(own(z_NSV).detach().exp() * own(z_NSV))[MASK].sum()
    loss, gradient = loss_of(OneTokenRollout(temperature=1.0, other=0.0), z_NSV)
    close(loss, expected.detach())
    close(gradient, torch.autograd.grad(expected, z_NSV)[0])


@pytest.mark.parametrize("other", [-0.1, 0.5])
def test_at_temperature_1_the_reward_of_others_is_a_baseline(other):
    z_NSV = logits()
    bare = loss_of(OneTokenRollout(temperature=1.0, other=0.0), z_NSV)[1]
    close(loss_of(OneTokenRollout(temperature=1.0, other=other), z_NSV)[1], (1 - other) * bare)


def test_infinitely_hot_it_is_likelihood_over_the_size_of_the_vocabulary():
    z_NSV = logits()
    expected = Likelihood()(own(z_NSV), TrainBatch(mask_NS=MASK)).loss_NS.sum() / 5
    loss, gradient = loss_of(OneTokenRollout(temperature=1e12, other=0.0), z_NSV)
    close(loss, expected.detach())
    close(gradient, torch.autograd.grad(expected, z_NSV)[0])


def test_many_draws_tend_to_it():
    z_NSV, g = logits(), torch.Generator().manual_seed(1)
    log_NSV, draws = z_NSV.log_softmax(-1), 200_000
    q_NSV = (z_NSV / 1.3).softmax(-1).detach()
    drawn = torch.multinomial(q_NSV.flatten(0, 1), draws, replacement=True, generator=g).unflatten(0, (2, 3))
    reward = torch.where(drawn == TARGET[..., None], 1.0, -0.1)
    expected_NS = -(reward * log_NSV.gather(-1, drawn)).mean(-1)
    gradient = torch.autograd.grad(expected_NS[MASK].sum(), z_NSV)[0]
    torch.testing.assert_close(loss_of(OneTokenRollout(), z_NSV)[1], gradient, atol=0.01, rtol=0)


def test_a_golden_value():
    """Two tokens at odds 3 : 1, the rarer one right: at temperature 2 the odds are sqrt 3 : 1."""
    log_NSV = torch.tensor([[[0.75, 0.25]]], dtype=torch.float64).log()
    b = TrainBatch(mask_NS=torch.tensor([[True]]), facts={"logprob_NSV": log_NSV}, live=frozenset({"logprob_NSV"}))
    terms = OneTokenRollout(temperature=2.0, other=-0.5)(log_NSV[..., 1], b)
    hit, (common, rare) = 1 / (1 + 3**0.5), log_NSV[0, 0]
    assert terms.metrics["rollout/hit"].item() == pytest.approx(hit)
    assert terms.loss_NS.item() == pytest.approx(float(-hit * rare + 0.5 * (1 - hit) * common))


def test_a_token_that_is_known_teaches_nothing():
    z_NSV = torch.zeros(2, 3, 5, dtype=torch.float64).scatter(-1, TARGET[..., None], 60.0).requires_grad_()
    loss, gradient = loss_of(OneTokenRollout(), z_NSV)
    assert loss.abs() < 1e-6 and gradient.abs().max() < 1e-6


def test_the_policy_gives_whole_distributions_with_gradient():
    policy = CausalLM().load()
    tokens = Tokens.stack([Tokens.row([1, 2, 3], [4, 5]), Tokens.row([1, 2], [7])])
    found = policy.evaluate(tokens, columns={"logprob_NSV"})
    whole_NSV = found.columns["logprob_NSV"]
    assert whole_NSV.shape == (2, 2, policy.model.config.vocab_size)
    picked_NS = whole_NSV.gather(-1, tokens.label_NS[..., None])[..., 0]
    there_NS = torch.tensor([[True, True], [True, False]])
    torch.testing.assert_close(picked_NS[there_NS], found.logprob_NS[there_NS])
    b = TrainBatch(mask_NS=there_NS).evaluated(found.columns)
    assert b.column("logprob_NSV", None).requires_grad and (b.column("logprob_NSV", None)[1, 1] == 0).all()


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"other": 1.0}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="OneTokenRollout"):
        OneTokenRollout(**wrong)
