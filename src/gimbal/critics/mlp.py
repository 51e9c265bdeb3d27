"""A value of vector observations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.critics.base import AbstractCritic, AbstractCriticSpec
from gimbal.ops import stable_hash
from gimbal.policies.control import Steps, mlp, scatter
from gimbal.records import AbstractDecisions


class ValueNetwork(AbstractCritic):
    """V(o) = scale * mlp(o). The value after the last decision is V of the final observation, and 0 where the environment ended."""

    def __init__(self, observations: int, hidden: tuple[int, ...], scale: float, seed: int) -> None:
        super().__init__()
        self.scale, self.observations = scale, observations
        self.net = mlp([observations, *hidden, 1], 1.0, seed)

    def value(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S"], Float[Tensor, " N"]]:
        assert isinstance(decisions, Steps), type(decisions)
        seen = decisions.observation_NSO.shape[-1]
        if seen != self.observations:
            raise ValueError(
                f"the critic reads {self.observations} numbers, but the environment's observation has {seen}: "
                f"set critic.observations={seen}"
            )
        real_NS = decisions.real_NS
        value_K = self.scale * self.net(decisions.observation_NSO[real_NS])[:, 0]
        final_N = self.scale * self.net(decisions.final_NO)[:, 0]
        return scatter(value_K, real_NS), torch.where(decisions.terminated_N, 0, final_N)


@dataclass(frozen=True, kw_only=True)
class ValueMLP(AbstractCriticSpec):
    """A value network on ``observations`` numbers. ``scale`` is the size of a typical return: the value of an output of 1."""

    observations: int
    hidden: tuple[int, ...] = (64, 64)
    scale: float = 1.0

    def load(self, seed: int) -> ValueNetwork:
        # A separate stream: the run's policy is initialised from the same seed.
        return ValueNetwork(self.observations, self.hidden, self.scale, stable_hash("critic", seed)).eval()
