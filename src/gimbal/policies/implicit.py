"""Policies that draw real actions without a density in closed form."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gimbal.policies.control import AbstractRealPolicy
from gimbal.policies.gaussian import log_density


class AbstractImplicitPolicy(AbstractRealPolicy):
    """What stands for a log-probability is log N(a; ``centre``(o), bound^2), which shows whose weights drew an action; nothing is
    learned from it, and there is no entropy."""

    provides: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def centre(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """An action of each state that depends on the weights and on nothing drawn."""

    def told(
        self, observation_BO: Float[Tensor, "B O"], action_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        """Drawn actions with what stands for their log-probabilities."""
        return action_BA, torch.where(temperature_B > 0, self._nearness(observation_BO, action_BA), 0)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        nearness_K = self._nearness(observation_KO, action_KA)
        return nearness_K, torch.full_like(nearness_K, math.nan)  # of an entropy, which it does not provide

    def _nearness(self, observation_KO: Tensor, action_KA: Tensor) -> Float[Tensor, " K"]:
        mean_KA = self.centre(observation_KO)
        return log_density(action_KA, mean_KA, torch.full_like(mean_KA, math.log(self.bound)))
