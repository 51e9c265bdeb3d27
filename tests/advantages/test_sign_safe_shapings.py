"""Shapings that raise advantages and keep their signs: by novelty and by entropy."""

import math

import pytest
import torch

from gimbal.advantages.shapings.entropy_shaped import EntropyShaped
from gimbal.advantages.shapings.novelty_sharpened import NoveltySharpened
from gimbal.records import TrainBatch


def batch(advantage, logprob, entropy=None, group=None):
    advantage_NS = torch.tensor(advantage, dtype=torch.float64)[:, None].expand(-1, 2)
    n = len(advantage)
    return TrainBatch(
        mask_NS=torch.ones(n, 2, dtype=torch.bool),
        advantage_NS=advantage_NS,
        proximal_NS=torch.tensor(logprob, dtype=torch.float64)[:, None] * torch.tensor([0.5, 1.5]),
        entropy_NS=None if entropy is None else torch.tensor(entropy, dtype=torch.float64)[:, None].expand(-1, 2),
        group_N=torch.tensor(group or [0] * n),
    )


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b), atol=1e-6, rtol=1e-6, check_dtype=False)


def test_novelty_by_hand():
    """Mean log-probabilities -1, -2, -3: eta is e, 1, 1/e; only the last is rarer than the group."""
    rare = 1 - math.exp(-1)
    close(NoveltySharpened()(batch([1.0, 1, 1], [-1.0, -2, -3]))[:, 0], [1, 1, 1.5])
    close(NoveltySharpened(cap=1.0)(batch([1.0, 1, 1], [-1.0, -2, -3]))[:, 0], [1, 1, 1 + rare])
    close(NoveltySharpened(strength=0.5)(batch([1.0, 1, 1], [-1.0, -2, -3]))[2, 0], 1 + 0.5 * rare)
    close(NoveltySharpened(cap=1.0)(batch([-1.0, 0, -1], [-1.0, -2, -3]))[:, 0], [-1, 0, -1])


@pytest.mark.parametrize("kwargs", [{"strength": 0.0}, {"cap": 0.0}])
def test_novelty_reduces_to_the_host(kwargs):
    b = batch([1.0, -1, 2], [-1.0, -5, -9])
    assert torch.equal(NoveltySharpened(**kwargs)(b), b.advantage_NS)


def test_likely_or_lone_answers_are_left_alone():
    b = batch([1.0, -1, 2], [-2.0, -2, -2])
    assert torch.equal(NoveltySharpened()(b), b.advantage_NS)
    b = batch([1.0, -1, 2], [-1.0, -5, -9], group=[0, 1, 2])
    assert torch.equal(NoveltySharpened()(b), b.advantage_NS)


def test_entropy_by_hand():
    b = batch([1.0, -1, 0, 4, -4], [0.0] * 5, [1.0, 1, 9, 0.5, 99])
    close(EntropyShaped()(b)[:, 0], [1.4, -0.6, 0, 4.2, -2])


@pytest.mark.parametrize("kwargs", [{"strength": 0.0}, {"cap": math.inf}])
def test_entropy_reduces_to_the_host(kwargs):
    b = batch([1.0, -1, 2], [0.0] * 3, [1.0, 2, 3])
    assert torch.equal(EntropyShaped(**kwargs)(b), b.advantage_NS)


def test_a_zero_advantage_stays_0_and_signs_stay():
    g = torch.Generator().manual_seed(0)
    advantage = [0.0, *torch.randn(50, generator=g).tolist()]
    b = batch(advantage, torch.randn(51, generator=g).tolist(), (5 * torch.rand(51, generator=g)).tolist())
    for shape in (EntropyShaped(strength=10.0, cap=1.001), NoveltySharpened(strength=10.0)):
        assert torch.equal(shape(b).sign(), b.advantage_NS.sign())
        assert (shape(b) >= b.advantage_NS).all()


def test_a_negative_entropy_of_a_density_takes_nothing():
    b = batch([1.0, -1], [0.0, 0], [-3.0, -3])
    assert torch.equal(EntropyShaped()(b), b.advantage_NS)


def test_no_gradient_comes_from_the_entropy():
    b = batch([1.0, -1], [0.0, 0], [3.0, 3])
    entropy_NS = b.entropy_NS.clone().requires_grad_()
    assert not EntropyShaped()(b.with_columns({"entropy_NS": entropy_NS})).requires_grad


def test_bounds_are_refused():
    with pytest.raises(ValueError, match="above 0"):
        EntropyShaped(cap=0.0)
    with pytest.raises(ValueError, match="0 \\(off\\) or above"):
        NoveltySharpened(cap=-1.0)
