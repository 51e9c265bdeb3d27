"""Noise that lasts over steps: its limits, by hand, and in pieces."""

import numpy as np
import pytest
import torch

from gimbal.ops import philox
from gimbal.ops.colored import colored

WHITE = torch.from_numpy(philox("colored").standard_normal((400, 2), dtype=np.float32))


def test_color_0_is_white_noise_to_the_bit():
    assert torch.equal(colored(WHITE, 0, 0.0), WHITE) and torch.equal(colored(WHITE, 390, 0.0), WHITE[390:])


def test_color_2_is_a_random_walk_in_units_of_its_own_spread():
    walk_TA = WHITE.double().cumsum(0) / torch.arange(1, 401, dtype=torch.double).sqrt()[:, None]
    torch.testing.assert_close(colored(WHITE, 0, 2.0), walk_TA.float())


def test_pink_noise_by_hand():
    """h = 1, 1/2, 3/8."""
    found_TA = colored(torch.tensor([[4.0], [-2.0], [8.0]]), 0, 1.0)
    wanted = [4.0, (-2 + 4 / 2) / 1.25**0.5, (8 - 2 / 2 + 4 * 3 / 8) / (1 + 1 / 4 + 9 / 64) ** 0.5]
    torch.testing.assert_close(found_TA[:, 0], torch.tensor(wanted))


@pytest.mark.parametrize("color", [0.0, 0.5, 1.0, 2.0])
def test_every_step_is_a_normal_number(color):
    """The squares of what each step takes of the white numbers add up to 1."""
    taken_TA = colored(torch.eye(50), 0, color)
    torch.testing.assert_close(taken_TA.square().sum(1), torch.ones(50))
    assert (taken_TA.triu(1) == 0).all(), "a step depends on none that comes later"


def test_its_spectrum_falls_by_its_color():
    white_TA = torch.from_numpy(philox("spectrum").standard_normal((512, 300), dtype=np.float32))
    low, high = slice(2, 8), slice(32, 128)
    at = np.arange(257)
    apart = np.log(at[high]).mean() - np.log(at[low]).mean()
    for color in (0.0, 0.5, 1.0):
        power = np.log(np.square(np.abs(np.fft.rfft(colored(white_TA, 0, color).numpy(), axis=0))).mean(1))
        assert (power[low].mean() - power[high].mean()) / apart == pytest.approx(color, abs=0.1)


def test_pieces_are_the_whole():
    whole_TA = colored(WHITE, 0, 1.0)
    pieces = [colored(WHITE[: first + 7], first, 1.0) for first in range(0, 392, 7)]
    assert torch.equal(torch.cat(pieces), whole_TA[: 7 * len(pieces)])
