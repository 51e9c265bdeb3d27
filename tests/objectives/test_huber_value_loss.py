"""The Huber loss of a critic: by hand, as the squared error, and against torch's own."""

import math

import pytest
import torch

from gimbal.objectives.values.huber_value_loss import HuberValueLoss
from gimbal.objectives.values.value_loss import ValueLoss
from gimbal.records import TrainBatch


def batch(value, old, target):
    value, old, target = (torch.tensor([x], dtype=torch.float64) for x in (value, old, target))
    mask_NS = torch.ones(value.shape, dtype=torch.bool)
    return TrainBatch(mask_NS=mask_NS, new_value_NS=value.requires_grad_(), value_NS=old, target_NS=target)


def loss_and_gradient(part, b):
    loss_NS = part(torch.zeros(b.shape, dtype=torch.float64), b).loss_NS
    return loss_NS.detach(), torch.autograd.grad(loss_NS.sum(), b.new_value_NS)[0]


def drawn(n=40, seed=0):
    g = torch.Generator().manual_seed(seed)
    return batch(*(torch.randn(n, generator=g, dtype=torch.float64).tolist() for _ in range(3)))


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=1e-6)


def test_by_hand():
    # Errors 0.4 (inside) and 2 (outside delta); the second moved by 1, so it is clipped to 0.2, with error 1.2.
    loss_NS, gradient_NS = loss_and_gradient(HuberValueLoss(coef=1.0), batch([0.4, 1.0], [0.4, 0.0], [0.0, -1.0]))
    close(loss_NS, [[0.5 * (0.08 + 0.08), 0.5 * (0.5 * 1.75 + 0.5 * 0.95)]])
    close(gradient_NS, [[0.4, 0.25]])


def test_reduces_to_the_squared_error_without_bounds():
    b = drawn()
    for found, expected in zip(
        loss_and_gradient(HuberValueLoss(delta=math.inf, clip=math.inf), b),
        loss_and_gradient(ValueLoss(), b),
        strict=True,
    ):
        close(found, expected)


def test_reduces_to_the_plain_huber_loss_without_clip():
    b = drawn()
    expected = 0.5 * torch.nn.functional.huber_loss(b.new_value_NS, b.target_NS, reduction="none", delta=0.5)
    loss_NS, gradient_NS = loss_and_gradient(HuberValueLoss(clip=math.inf), b)
    close(loss_NS, expected.detach())
    close(gradient_NS, torch.autograd.grad(expected.sum(), b.new_value_NS)[0])


def test_beyond_the_clip_half_the_gradient_is_left():
    near, far = batch([0.0], [0.0], [1.0]), batch([0.0], [0.5], [1.0])
    close(loss_and_gradient(HuberValueLoss(), far)[1], 0.5 * loss_and_gradient(HuberValueLoss(), near)[1])


def test_bounds_of_nothing_are_refused():
    with pytest.raises(ValueError, match="inf is off"):
        HuberValueLoss(delta=0.0)
