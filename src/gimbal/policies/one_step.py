"""Policies that turn noise into an action in one step: a vector of real actions between bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gimbal.composition import Composition, Verdict
from gimbal.policies.base import Family
from gimbal.policies.control import (
    NO_DENSITY,
    AbstractBoundedSpec,
    AbstractRealPolicy,
    made,
    output_of,
    relu_mlp,
    without_density,
)
from gimbal.policies.gaussian import log_density


class OneStepPolicy(AbstractRealPolicy):
    """a = bound clip(f(o, z), -1, 1),  z ~ N(0, T) in each of the A dimensions: a distribution of any shape. The mode is that of z = 0.

    It has no density in closed form. What stands for a log-probability is log N(a; bound f(o, 0), bound^2), which shows whose weights
    drew an action; nothing is learned from it.
    """

    provides: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self, observations: int, actions: int, hidden: list[int], bound: float, normalize: bool, seed: int
    ) -> None:
        super().__init__()
        self.bounded(observations, actions, hidden, bound, normalize)
        self.net = relu_mlp([observations + actions, *hidden, actions], seed)

    def shares(self, observation_KO: Float[Tensor, "K O"], noise_KA: Float[Tensor, "K A"]) -> Float[Tensor, "K A"]:
        """f, with gradient: actions in units of the bound, before they are clipped."""
        return output_of(self.net, torch.cat([self.normal(observation_KO), noise_KA], dim=-1))

    def act(self, observation_KO: Float[Tensor, "K O"], noise_KA: Float[Tensor, "K A"]) -> Float[Tensor, "K A"]:
        return self.bound * self.shares(observation_KO, noise_KA).clamp(-1, 1)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        action_BA = self.act(observation_BO, temperature_B[:, None].sqrt() * noise_BA)
        return action_BA, torch.where(temperature_B > 0, self._nearness(observation_BO, action_BA), 0)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        nearness_K = self._nearness(observation_KO, action_KA)
        return nearness_K, torch.full_like(nearness_K, math.nan)  # of an entropy, which it does not provide

    def _nearness(self, observation_KO: Tensor, action_KA: Tensor) -> Float[Tensor, " K"]:
        mean_KA = self.bound * self.shares(observation_KO, torch.zeros_like(action_KA))
        return log_density(action_KA, mean_KA, torch.full_like(mean_KA, math.log(self.bound)))


@dataclass(frozen=True, kw_only=True)
class OneStep(AbstractBoundedSpec):
    """A network from ``observations`` inputs and noise to ``actions`` continuous actions in [-``bound``, ``bound``], or the one saved
    in the directory ``model``. ``normalize``: scale observations by their own spread.
    """

    family: ClassVar[Family] = NO_DENSITY

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        yield from without_density(self, whole)

    def load(self, seed: int = 0) -> OneStepPolicy:
        return made(OneStepPolicy, self, seed)
