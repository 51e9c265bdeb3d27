"""Noise that lasts over steps."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def colored(white_TA: Float[Tensor, "T A"], first: int, color: float) -> Float[Tensor, "S A"]:
    """Noise with a power spectrum of 1 / f^``color`` from white noise e since the first step; its steps from ``first`` on.

        x_t = sum_k h_k e_(t-k) / sqrt(sum_k h_k^2),   k = 0 .. t,   h_0 = 1,   h_k = h_(k-1) (k - 1 + ``color`` / 2) / k

    Every x_t is N(0, 1), as every e_t is: color ties steps together and leaves the distribution of each as it was.

    - ``color`` = 0: x = e, white noise.
    - ``color`` = 2: h_k = 1, a random walk (red noise) in units of its own spread.

    Fractional differences (Kasdin 1995): x_t depends on nothing later, so it can go on where an episode was left.
    """
    steps = len(white_TA)
    k = np.arange(1, steps)
    h_T = np.cumprod(np.append(1.0, (k - 1 + color / 2) / k))
    lag_ST = np.arange(first, steps)[:, None] - np.arange(steps)
    weight_ST = np.where(lag_ST >= 0, h_T[lag_ST], 0.0)
    weight_ST /= np.sqrt(np.square(weight_ST).sum(1, keepdims=True))
    # Not by a matrix product: its last bits depend on the number of threads.
    sum_SA = (weight_ST[:, :, None] * white_TA.numpy()).sum(1)
    return torch.from_numpy(sum_SA.astype(np.float32))
