"""Observations scaled by their own spread."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

REACH = 10.0  # standard deviations beyond which an observation is cut


class Normalizer(nn.Module):
    """(o - mean) / std per dimension, over all observations seen; initially mean 0 and std 1.

    The statistics are buffers: they are sent and saved with the weights, so sampler and learner see the same inputs. Only ``observe``
    moves them, once per observation acted on; replayed observations do not count.
    """

    mean_O: Tensor
    variance_O: Tensor
    count: Tensor

    def __init__(self, observations: int) -> None:
        super().__init__()
        self.register_buffer("mean_O", torch.zeros(observations))
        self.register_buffer("variance_O", torch.ones(observations))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, observation_BO: Float[Tensor, "*B O"]) -> Float[Tensor, "*B O"]:
        return ((observation_BO - self.mean_O) * (self.variance_O + 1e-8).rsqrt()).clamp(-REACH, REACH)

    @torch.no_grad()
    def observe(self, observation_KO: Float[Tensor, "K O"]) -> None:
        """Let these count too: the moments of both parts together (Chan et al. 1979)."""
        if not len(observation_KO):
            return
        new = float(len(observation_KO))
        old = float(self.count)
        mean_O, variance_O = observation_KO.mean(0), observation_KO.var(0, unbiased=False)
        apart_O = mean_O - self.mean_O
        share = new / (old + new)
        first = self.variance_O if old else torch.zeros_like(variance_O)
        self.variance_O.copy_(
            (1 - share) * first + share * variance_O + share * (1 - share) * apart_O.square() * bool(old)
        )
        self.mean_O.add_(share * apart_O)
        self.count.add_(new)
