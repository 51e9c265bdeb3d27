"""Gaussian policies: a vector of real actions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.control import DENSITIES, EACH, MEAN, AbstractRealPolicy, config_of, mlp, output_of, read_weights

MOST_LOG_STD = 20.0  # of either sign: float32 does not resolve densities beyond


class GaussianPolicy(AbstractRealPolicy):
    """a ~ N(mean(o), exp(log_std)^2 T), independent over the A dimensions; log_std does not depend on the observation.

    Actions are recorded as sampled; the environment clips them to its range.
    """

    provides: ClassVar[frozenset[str]] = frozenset({"entropy_NS", EACH, MEAN})

    def __init__(self, observations: int, actions: int, hidden: list[int], log_std: float, seed: int) -> None:
        super().__init__()
        self.config = {"observations": observations, "actions": actions, "hidden": hidden}
        # A last gain of 0.01: the first policy acts by its noise alone, whatever it sees.
        self.mean = mlp([observations, *hidden, actions], 0.01, seed)
        self.log_std_A = nn.Parameter(torch.full((actions,), log_std))

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        mean_BA, log_std_BA = self._moments(observation_BO, temperature_B[:, None])
        action_BA = mean_BA + log_std_BA.exp() * noise_BA
        return action_BA, torch.where(temperature_B > 0, log_density(action_BA, mean_BA, log_std_BA), 0)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        mean_KA, log_std_KA = self._moments(observation_KO, torch.tensor(temperature))
        return log_density(action_KA, mean_KA, log_std_KA), (log_std_KA + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def assess_each(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> Float[Tensor, "K A"]:
        return log_densities(action_KA, *self._moments(observation_KO, torch.tensor(temperature)))

    def mean_action(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        return output_of(self.mean, observation_KO)

    def _moments(self, observation_KO: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        mean_KA = output_of(self.mean, observation_KO)
        # N(mean, std^2) to the power 1/T is N(mean, T std^2); log 0 gives a standard deviation of 0.
        return mean_KA, (self.log_std_A.float() + 0.5 * temperature.to(mean_KA.device).log()).expand_as(mean_KA)


def log_density(
    action_KA: Float[Tensor, "K A"], mean_KA: Float[Tensor, "K A"], log_std_KA: Float[Tensor, "K A"]
) -> Float[Tensor, " K"]:
    """log N(action; mean, std^2), summed over A."""
    return log_densities(action_KA, mean_KA, log_std_KA).sum(-1)


def log_densities(
    action_KA: Float[Tensor, "K A"], mean_KA: Float[Tensor, "K A"], log_std_KA: Float[Tensor, "K A"]
) -> Float[Tensor, "K A"]:
    """log N(action; mean, std^2) of each number."""
    z_KA = (action_KA - mean_KA) * (-log_std_KA).exp()
    return -(0.5 * z_KA.square() + log_std_KA + 0.5 * math.log(2 * math.pi))


def check_log_std(value: float, name: str = "log_std") -> None:
    if not abs(value) <= MOST_LOG_STD:
        raise ValueError(
            f"policy.{name} is {value:g}; it is the logarithm of the initial standard deviation, from -{MOST_LOG_STD:g} to "
            f"{MOST_LOG_STD:g}"
        )


@dataclass(frozen=True, kw_only=True)
class Gaussian(AbstractPolicySpec):
    """A Gaussian policy on ``observations`` inputs with ``actions`` continuous actions, or the one saved in the directory ``model``.

    ``log_std`` is the logarithm of the initial standard deviation, in the units of the actions.
    """

    family: ClassVar[Family] = DENSITIES

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    log_std: float = 0.0
    model: str = ""

    def __post_init__(self) -> None:
        check_log_std(self.log_std)

    def load(self, seed: int = 0) -> GaussianPolicy:
        if not self.model:
            return GaussianPolicy(self.observations, self.actions, list(self.hidden), self.log_std, seed).eval()
        saved = config_of(self, ("observations", "actions", "hidden"), "pendulum or bc")
        policy = GaussianPolicy(saved["observations"], saved["actions"], saved["hidden"], 0.0, seed)
        read_weights(policy, self.model)
        return policy.eval()

    def at(self, directory: Path) -> Gaussian:
        return replace(self, model=str(directory))
