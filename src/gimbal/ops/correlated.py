"""Noise that lasts over steps."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def correlated(
    white_SA: Float[Tensor, "S *agents A"], before_A: Float[Tensor, "*agents A"] | None, correlation: float
) -> Float[Tensor, "S *agents A"]:
    """The stationary Ornstein-Uhlenbeck process at whole steps, from white noise e; ``before_A`` is its last value, None at its start.

        x_t = c x_(t-1) + sqrt(1 - c^2) e_t,   x_0 = e_0,   c = ``correlation``

    Every x_t is N(0, 1), as every e_t is, and corr(x_t, x_(t+k)) = c^k: it lasts for about 1 / (1 - c) steps.

    - c = 0: x = e, white noise, to the bit.
    - c = 1: x = x_0, one push for the whole episode.
    """
    fresh, steps = math.sqrt(1 - correlation**2), list[Tensor]()
    for white_A in white_SA:
        before_A = white_A if before_A is None else correlation * before_A + fresh * white_A
        steps.append(before_A)
    return torch.stack(steps)
