"""One step of a sampler: the Gaussian N(mean, std^2) of the next state, given the state and the network's output.

A state is x = a x0 + s eps, with signal a and noise s; a step leads from (a, s) to (a', s'). Flows: a = 1 - s, and the network predicts
the velocity v = eps - x0; diffusion: a^2 + s^2 = 1. With amplitude 0 each is the ODE: a' x0 + s' eps, which is x - (s - s') v of a
flow.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

FLOWS, DIFFUSIONS = ("flow_sde", "dance_sde", "cps", "ode"), ("ddim", "ode")


def wide(value_K: Float[Tensor, " K"], like_KD: Float[Tensor, "K ..."]) -> Float[Tensor, "K ..."]:
    """A number of each state in a shape that multiplies states."""
    return value_K.reshape(-1, *[1] * (like_KD.ndim - 1))


def step(
    sampler: str,
    x_KD: Float[Tensor, "K ..."],
    clean_KD: Float[Tensor, "K ..."],
    noise_KD: Float[Tensor, "K ..."],
    level_KL: Float[Tensor, "K 4"],
    amplitude_K: Float[Tensor, " K"],
) -> tuple[Float[Tensor, "K ..."], Float[Tensor, " K"]]:
    """Mean and standard deviation of the next state.

    - flow_sde (arXiv:2505.05470): g = amplitude sqrt(s / (1 - s)), s' in place of s under the root where s = 1;
      mean = x - dt (v + g^2 / (2 s) eps), std = g sqrt(dt), dt = s - s'. It keeps the marginals of the ODE as dt goes to 0.
    - dance_sde (arXiv:2505.07818): the same with g = amplitude.
    - cps (arXiv:2509.05952): std = s' sin(amplitude pi / 2), mean = a' x0 + sqrt(s'^2 - std^2) eps. It does not keep the marginals.
    - ode: std = 0, mean = a' x0 + s' eps.
    - ddim (arXiv:2010.02502): the same mean, std = amplitude sqrt((1 - a'^2) / (1 - a^2) (1 - a^2 / a'^2)); at amplitude 1 this is
      a step of DDPM (arXiv:2006.11239).
    """
    signal_K, sigma_K, next_signal_K, next_K = level_KL.unbind(-1)

    if sampler in ("flow_sde", "dance_sde"):
        dt_K = sigma_K - next_K
        if sampler == "flow_sde":
            below_K = torch.where(sigma_K >= 1 - 1e-6, next_K, sigma_K)
            rate_K = amplitude_K.square() * sigma_K / (1 - below_K)  # g^2
        else:
            rate_K = amplitude_K.square()
        drift_KD = noise_KD - clean_KD + wide(rate_K / (2 * sigma_K), x_KD) * noise_KD
        return x_KD - wide(dt_K, x_KD) * drift_KD, (rate_K * dt_K).sqrt()
    if sampler == "ode":
        std_K = torch.zeros_like(next_K)
    elif sampler == "cps":
        std_K = next_K * torch.sin(amplitude_K * (math.pi / 2))
    else:
        assert sampler == "ddim", sampler
        kept_K = (signal_K / next_signal_K).square()
        std_K = amplitude_K * next_K / sigma_K * (1 - kept_K).clamp(min=0).sqrt()
    rest_K = (next_K.square() - std_K.square()).clamp(min=0).sqrt()
    return wide(next_signal_K, x_KD) * clean_KD + wide(rest_K, x_KD) * noise_KD, std_K


def log_density(
    x_KD: Float[Tensor, "K ..."], mean_KD: Float[Tensor, "K ..."], std_K: Float[Tensor, " K"], scale: float
) -> Float[Tensor, " K"]:
    """log N(x; mean, std^2), summed over D and times ``scale``."""
    d = math.prod(x_KD.shape[1:])
    apart_K = (x_KD - mean_KD).flatten(1).square().sum(-1)
    return scale * (-apart_K / (2 * std_K.square()) - d * (std_K.log() + 0.5 * math.log(2 * math.pi)))
