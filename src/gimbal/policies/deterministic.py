"""Deterministic policies that explore by noise: a vector of real actions between bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.clipped import AbstractClippedPolicy
from gimbal.policies.control import DENSITIES, check_bound, made, output_of, relu_mlp


class DeterministicPolicy(AbstractClippedPolicy):
    """mode(o) = bound tanh(f(o))."""

    def __init__(
        self, observations: int, actions: int, hidden: list[int], bound: float, normalize: bool, seed: int
    ) -> None:
        super().__init__(bound)
        self.bounded(observations, actions, hidden, bound, normalize)
        self.mean = relu_mlp([observations, *hidden, actions], seed)

    def mode(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        return self.bound * output_of(self.mean, self.normal(observation_BO)).tanh()


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
        check_bound(self.bound)

    def load(self, seed: int = 0) -> DeterministicPolicy:
        return made(DeterministicPolicy, self, seed)

    def at(self, directory: Path) -> Deterministic:
        return replace(self, model=str(directory))
