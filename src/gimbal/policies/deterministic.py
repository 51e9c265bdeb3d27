"""Deterministic policies that explore by noise: a vector of real actions between bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.control import DENSITIES, AbstractControlPolicy, read_config, read_weights, relu_mlp


class DeterministicPolicy(AbstractControlPolicy):
    """a = clip(mode(o) + bound explore e, -bound, bound),  mode(o) = bound tanh(f(o)),  e ~ N(0, 1) in each of the A dimensions.

    ``explore`` is a buffer that the update moves; it is sent with the weights. Clipped values lie exactly on the bound: a dimension
    has a density within the bounds and, on each bound, a probability (the mass of the Gaussian's tail); the log-probability uses
    whichever applies. A temperature T scales the variance of the noise; 0 is the mode.
    """

    provides: ClassVar[frozenset[str]] = frozenset()
    explore: Tensor

    def __init__(
        self, observations: int, actions: int, hidden: list[int], bound: float, normalize: bool, seed: int
    ) -> None:
        super().__init__()
        self.config = {
            "observations": observations,
            "actions": actions,
            "hidden": hidden,
            "bound": bound,
            "normalize": normalize,
        }
        self.bound, self.actions = bound, actions
        self.normalizes(observations, normalize)
        self.mean = relu_mlp([observations, *hidden, actions], seed)
        self.register_buffer("explore", torch.ones(()))

    @property
    def interface(self) -> str:
        return f"{self.config['observations']} observations, {self.actions} real actions"

    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S A"]:
        return torch.from_numpy(generator.standard_normal((steps, self.actions), dtype=np.float32))

    def mode(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        normal_BO = self.normal(observation_BO)
        return self.bound * self.mean(normal_BO.to(next(self.mean.parameters()).dtype)).float().tanh()

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
    inside_KA = -0.5 * ((action_KA - mode_KA) * (-log_std).exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
    # The tail beyond the bound that it lies on.
    beyond_KA = torch.special.log_ndtr((mode_KA * action_KA.sign() - bound) * (-log_std).exp())
    return torch.where(action_KA.abs() >= bound, beyond_KA, inside_KA).sum(-1)


@dataclass(frozen=True, kw_only=True)
class Deterministic(AbstractPolicySpec):
    """A deterministic policy into [-``bound``, ``bound``], on ``observations`` inputs with ``actions`` continuous actions, or the one
    saved in the directory ``model``. ``normalize``: scale observations by their own spread.
    """

    family: ClassVar[Family] = DENSITIES

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    bound: float = 1.0
    normalize: bool = False
    model: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.bound < math.inf:
            raise ValueError(f"policy.bound is {self.bound}; it is the largest action, a number above 0")

    def load(self, seed: int = 0) -> DeterministicPolicy:
        if not self.model:
            own = (self.observations, self.actions, list(self.hidden), self.bound, self.normalize)
            return DeterministicPolicy(*own, seed).eval()
        policy = DeterministicPolicy(**read_config(self.model), seed=seed)
        read_weights(policy, self.model)
        return policy.eval()

    def at(self, directory: Path) -> Deterministic:
        return replace(self, model=str(directory))
