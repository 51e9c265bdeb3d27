"""Shared by policies that add noise to their own action and clip the sum."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gimbal.policies.control import AbstractRealPolicy


class AbstractClippedPolicy(AbstractRealPolicy):
    """a = clip(mode(o) + bound explore e, -bound, bound),  e ~ N(0, 1) in each of the A dimensions.

    ``explore`` is a buffer that the update moves; it is sent with the weights. Clipped values lie exactly on the bound: a dimension
    has a density within the bounds and, on each bound, a probability (the mass of the Gaussian's tail); the log-probability uses
    whichever applies. A temperature T scales the variance of the noise; 0 is the mode.
    """

    provides: ClassVar[frozenset[str]] = frozenset()
    explore: Tensor

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound
        self.register_buffer("explore", torch.ones(()))

    @abstractmethod
    def mode(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        """The action without noise."""

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        mode_BA, log_std_B1 = self.mode(observation_BO), self._log_std(temperature_B[:, None])
        action_BA = (mode_BA + log_std_B1.exp() * noise_BA).clamp(-self.bound, self.bound)
        return action_BA, torch.where(temperature_B > 0, clipped_logprob(action_BA, mode_BA, log_std_B1, self.bound), 0)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        log_std = self._log_std(torch.tensor(temperature))
        logprob_K = clipped_logprob(action_KA, self.mode(observation_KO), log_std, self.bound)
        return logprob_K, torch.full_like(logprob_K, math.nan)  # of an entropy, which it does not provide

    def _log_std(self, temperature: Tensor) -> Tensor:
        return (self.bound * self.explore.float()).log() + 0.5 * temperature.to(self.explore.device).log()


def clipped_logprob(action_KA: Tensor, mode_KA: Tensor, log_std: Tensor, bound: float) -> Float[Tensor, " K"]:
    """Of a Gaussian that is clipped to [-bound, bound]."""
    per_std = (-log_std).exp()
    inside_KA = -0.5 * ((action_KA - mode_KA) * per_std).square() - log_std - 0.5 * math.log(2 * math.pi)
    # The tail beyond the bound that it lies on.
    beyond_KA = torch.special.log_ndtr((mode_KA * action_KA.sign() - bound) * per_std)
    return torch.where(action_KA.abs() >= bound, beyond_KA, inside_KA).sum(-1)
