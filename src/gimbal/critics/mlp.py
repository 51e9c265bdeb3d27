"""A value of vector observations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Verdict
from gimbal.critics.base import AbstractCriticSpec
from gimbal.critics.members import AbstractMembers, horizons
from gimbal.ops import stable_hash
from gimbal.policies.control import Steps, mlp, output_of, real_of
from gimbal.records import AbstractDecisions


class ValueNetwork(AbstractMembers):
    """V(o) = scale * mlp(o). The value after the last decision is V of the final observation, and 0 where the environment ended.
    Each of ``heads`` is an output of the same network."""

    def __init__(self, observations: int, hidden: tuple[int, ...], scale: float, seed: int, heads: int = 1) -> None:
        super().__init__()
        self.scale, self.observations = scale, observations
        self.net = mlp([observations, *hidden, heads], 1.0, seed)

    def present(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> Float[Tensor, "N S M"]:
        assert isinstance(decisions, Steps), type(decisions)
        seen = decisions.observation_NSO.shape[-1]
        if seen != self.observations:
            raise ValueError(
                f"the critic reads {self.observations} numbers, but the environment's observation has {seen}: "
                f"set critic.observations={seen}"
            )
        real, placed = real_of(decisions)
        return placed(self.scale * output_of(self.net, real(decisions.observation_NSO)))

    def members(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S M"], Float[Tensor, "N M"]]:
        value_NSM = self.present(decisions)
        assert isinstance(decisions, Steps), type(decisions)
        final_NM = self.scale * output_of(self.net, decisions.final_NO)
        return value_NSM, torch.where(decisions.terminated_N[:, None], 0, final_NM)


@dataclass(frozen=True, kw_only=True)
class ValueMLP(AbstractCriticSpec):
    """A value network on ``observations`` numbers. ``scale`` is the size of a typical return: the value of an output of 1. With
    ``heads`` > 1 each may learn another horizon (MultiHorizonValueLoss); the last one is used."""

    observations: int
    hidden: tuple[int, ...] = (64, 64)
    scale: float = 1.0
    heads: int = 1

    def __post_init__(self) -> None:
        if self.heads < 1 or not 0 < self.scale < math.inf:
            raise ValueError(
                f"ValueMLP has heads {self.heads} (at least 1) and scale {self.scale} (above 0 and finite), the size of a return"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from horizons(self.heads, whole)

    def load(self, seed: int) -> ValueNetwork:
        # A separate stream: the run's policy is initialised from the same seed.
        stream = stable_hash("critic", seed)
        return ValueNetwork(self.observations, self.hidden, self.scale, stream, self.heads).eval()
