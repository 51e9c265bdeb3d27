"""Deterministic policies that explore by noise: a vector of real actions between bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.policies.base import Family
from gimbal.policies.clipped import AbstractClippedPolicy
from gimbal.policies.control import DENSITIES, AbstractBoundedSpec, made, output_of
from gimbal.policies.residual import check_blocks, trunk


class DeterministicPolicy(AbstractClippedPolicy):
    """mode(o) = bound tanh(f(o))."""

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        bound: float,
        normalize: bool,
        seed: int,
        blocks: int = 0,
    ) -> None:
        super().__init__(bound)
        self.bounded(observations, actions, hidden, bound, normalize)
        self.mean = trunk(observations, hidden, actions, blocks, seed)
        self.config |= {"blocks": blocks}

    def mode(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        return self.bound * output_of(self.mean, self.normal(observation_BO)).tanh()


@dataclass(frozen=True, kw_only=True)
class Deterministic(AbstractBoundedSpec):
    """A deterministic policy into [-``bound``, ``bound``], on ``observations`` inputs with ``actions`` continuous actions, or the one
    saved in the directory ``model``. ``normalize``: scale observations by their own spread. ``blocks``: as in ``SquashedGaussian``.
    """

    family: ClassVar[Family] = DENSITIES

    blocks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_blocks(self.hidden, self.blocks)

    def load(self, seed: int = 0) -> DeterministicPolicy:
        return made(DeterministicPolicy, self, seed)
