"""Values of actions: Q(o, a)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from gimbal.ops import stable_hash
from gimbal.policies.control import relu_mlp
from gimbal.policies.ensemble import ActionValueNetwork


@dataclass(frozen=True, kw_only=True)
class ActionValues:
    """``members`` networks that value an action given an observation; the smaller value of two overestimates less than one.
    ``layer_norm`` (arXiv:1607.06450) before each ReLU bounds values far from the data by the last layer's weights."""

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    members: int = 2
    bound: float = 1.0  # of actions: what an input of 1 stands for
    layer_norm: bool = False

    def __post_init__(self) -> None:
        if self.members < 1 or not 0 < self.bound < math.inf:
            raise ValueError(
                f"ActionValues has members {self.members} (at least 1) and bound {self.bound} (above 0 and finite): the largest action"
            )

    def load(self, seed: int) -> ActionValueNetwork:
        # A separate stream: the run's policy is initialised from the same seed.
        first = stable_hash("Q", seed) % 2**63
        inputs = self.observations + self.actions
        return ActionValueNetwork(inputs, self.hidden, self.members, self.bound, first, self.layer_norm)

    def of_states(self, name: str, seed: int) -> nn.Module:
        """A network of the same sizes that values an observation alone. Those of other names have other first weights."""
        return relu_mlp([self.observations, *self.hidden, 1], stable_hash(name, seed) % 2**63)
