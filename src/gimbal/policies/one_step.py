"""Policies that turn noise into an action in one step: a vector of real actions between bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Verdict
from gimbal.policies.base import Family
from gimbal.policies.control import (
    NO_DENSITY,
    AbstractBoundedSpec,
    made,
    output_of,
    relu_mlp,
    without_density,
)
from gimbal.policies.implicit import AbstractImplicitPolicy


class OneStepPolicy(AbstractImplicitPolicy):
    """a = bound clip(f(o, z), -1, 1),  z ~ N(0, T) in each of the A dimensions: a distribution of any shape. The mode is that of z = 0.

    It has no density in closed form; what stands for one is around bound f(o, 0).
    """

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
        return self.told(observation_BO, action_BA, temperature_B)

    def centre(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        still_KA = observation_KO.new_zeros(len(observation_KO), self.actions)
        return self.bound * self.shares(observation_KO, still_KA)


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
