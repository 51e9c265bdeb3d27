"""Noise that lasts over steps: its limits, by hand, and in pieces."""

import numpy as np
import pytest
import torch

from gimbal.ops import philox
from gimbal.ops.correlated import correlated

WHITE = torch.from_numpy(philox("correlated").standard_normal((400, 2), dtype=np.float32))


def test_correlation_0_is_white_noise_to_the_bit():
    assert torch.equal(correlated(WHITE, None, 0.0), WHITE)
    assert torch.equal(correlated(WHITE, torch.full((2,), 3.0), 0.0), WHITE)


def test_correlation_1_is_one_push():
    assert torch.equal(correlated(WHITE, None, 1.0), WHITE[:1].expand(400, 2))


def test_by_hand():
    found_TA = correlated(torch.tensor([[2.0], [-1.0], [5.0]]), None, 0.6)
    torch.testing.assert_close(found_TA[:, 0], torch.tensor([2.0, 0.4, 4.24]))  # .6 x + .8 e


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_every_step_is_a_normal_number_and_steps_are_correlated(correlation):
    """By what each step takes of the white numbers: their squares add up to 1, their products to the power of the correlation."""
    taken_TW = correlated(torch.eye(50), None, correlation)
    apart_TT = (torch.arange(50)[:, None] - torch.arange(50)).abs()
    torch.testing.assert_close(taken_TW @ taken_TW.T, correlation**apart_TT, atol=1e-5, rtol=1e-5)


def test_pieces_are_the_whole():
    whole_TA, before_A, pieces = correlated(WHITE, None, 0.9), None, []
    for white_SA in WHITE.split(7):
        pieces.append(correlated(white_SA, before_A, 0.9))
        before_A = pieces[-1][-1]
    assert torch.equal(torch.cat(pieces), whole_TA)
