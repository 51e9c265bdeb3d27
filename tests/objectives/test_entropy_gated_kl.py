"""The gated penalty: by hand, silent below its threshold, and the true gradient of what it stands for."""

import dataclasses
import math

import pytest
import torch

from gimbal.objectives.regularisers.entropy_gated_kl import EntropyGatedKL
from gimbal.objectives.values.huber_value_loss import HuberValueLoss
from gimbal.recipes.core.ppo import ppo
from gimbal.recipes.papers.trust_region.safe import safe
from gimbal.records import TrainBatch

NOW = EntropyGatedKL(decay=0.0)


def batch(gap, entropy=1.9):
    """Decisions whose log-ratio to the reference is ``gap``, the last one masked."""
    gap_NS = torch.tensor([[*gap, 50.0]], dtype=torch.float64)
    mask_NS = torch.ones(gap_NS.shape, dtype=torch.bool)
    mask_NS[:, -1] = False
    current_NS = torch.full_like(gap_NS, -1.0)
    return TrainBatch(
        mask_NS=mask_NS,
        current_NS=current_NS,
        reference_NS=current_NS - gap_NS,
        entropy_NS=torch.full_like(gap_NS, entropy),
    )


def loss_and_gradient(part, b):
    logprob_NS = b.current_NS.clone().requires_grad_()
    loss_NS = part(logprob_NS, b.with_columns(part.survey(b))).loss_NS
    return loss_NS.detach(), torch.autograd.grad(loss_NS.sum(), logprob_NS)[0]


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=1e-6)


def test_by_hand():
    # Mean gap 0.8; s = 0.9 x 0.5 + 0.1 x 0.8 = 0.53; the factor is 2 x 0.1 x (0.53 - 0.3), and the gate 2 / (1.9 + 0.1) = 1.
    rein = 0.2 * 0.23
    loss_NS, gradient_NS = loss_and_gradient(EntropyGatedKL(smoothed=0.5), batch([0.6, 1.0]))
    close(loss_NS, [[rein * 0.18, rein * 0.5, 0.0]])
    close(gradient_NS, [[rein * 0.6, rein * 1.0, 0.0]])


def test_the_average_of_steps():
    part = EntropyGatedKL(smoothed=0.5)
    assert part.update(part.init(), {"kl/k1": 0.8}) == pytest.approx({"smoothed": 0.53})
    assert NOW.update(NOW.init(), {"kl/k1": 0.8}) == {"smoothed": 0.8}


@pytest.mark.parametrize(("entropy", "gate"), [(0.0, 20.0), (0.9, 2.0), (3.9, 0.5), (9.0, 0.5), (-1.0, 20.0)])
def test_the_lower_the_entropy_the_harder_the_pull(entropy, gate):
    b = batch([0.6, 1.0], entropy=entropy)
    close(loss_and_gradient(NOW, b)[1], gate * loss_and_gradient(NOW, batch([0.6, 1.0]))[1])


def test_silent_below_the_threshold_and_on_the_side_of_exploration():
    for gap in ([0.2, 0.3], [-5.0, -9.0]):
        assert all((x == 0).all() for x in loss_and_gradient(NOW, batch(gap)))


@pytest.mark.parametrize(
    "part", [EntropyGatedKL(decay=0.0, threshold=math.inf), EntropyGatedKL(decay=0.0, strength=0.0)]
)
def test_reduces_to_ppo_with_two_critics_at_an_infinite_threshold(part):
    """The penalty adds nothing, to the loss or to its gradient; what is left of the recipe is PPO."""
    assert all((x == 0).all() for x in loss_and_gradient(part, batch([0.6, 4.0])))
    left = dataclasses.replace(safe(), regularisers=(HuberValueLoss(),), controllers={})
    same = ("advantage", "critic", "regularisers", "optimization")
    assert dataclasses.replace(left, **{name: getattr(ppo(), name) for name in same}) == ppo()


def test_at_the_reference_it_is_0():
    part = EntropyGatedKL(smoothed=9.0)
    loss_NS, gradient_NS = loss_and_gradient(part, batch([0.0, 0.0]))
    assert (loss_NS == 0).all() and (gradient_NS == 0).all()


def test_its_expected_gradient_is_that_of_the_penalty():
    """A uniform policy over five arms, each drawn once: the mean over draws is the expectation."""
    logits = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([4.0, 0, 1, -3, 2], dtype=torch.float64).log_softmax(-1)
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).sum()
    kl = (logp.exp() * (logp - reference)).sum()
    gate = 2.0 / (entropy.detach() + 0.1)
    assert kl > 0.3 and gate > 0.5
    exact = torch.autograd.grad(0.1 * (kl - 0.3).square() * gate, logits, retain_graph=True)[0]
    b = TrainBatch(
        mask_NS=torch.ones(5, 1, dtype=torch.bool),
        current_NS=logp.detach()[:, None],
        reference_NS=reference[:, None],
        entropy_NS=entropy.detach().expand(5, 1),
    )
    loss = NOW(logp[:, None], b.with_columns(NOW.survey(b))).loss_NS.mean()
    close(torch.autograd.grad(loss, logits)[0], exact)


def test_a_loop_that_takes_no_survey_gets_the_same():
    b = batch([0.6, 1.0])
    loss_NS = NOW(b.current_NS, dataclasses.replace(b, current_NS=None)).loss_NS
    close(loss_NS, loss_and_gradient(NOW, b)[0])


def test_senseless_numbers_are_refused():
    with pytest.raises(ValueError, match="0 to 1"):
        EntropyGatedKL(decay=2.0)
    with pytest.raises(ValueError, match="away from the reference"):
        EntropyGatedKL(strength=-1.0)
