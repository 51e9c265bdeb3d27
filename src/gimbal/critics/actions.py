"""Values of actions: Q(o, a)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.ops.weights import weights_of
from gimbal.policies.control import relu_mlp
from gimbal.policies.ensemble import ensemble, through


class ActionValueNetwork(nn.Module):
    """Q_m(o, a) for M networks of the same sizes at once: linear layers with ReLU between them on [o, a / ``bound``].
    ``layer_norm``: each ReLU sees g (x - mean) / spread + c, over the units of its layer, with g and c of each unit."""

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], members: int, bound: float, seed: int, layer_norm: bool
    ) -> None:
        super().__init__()
        self.bound, self.inputs, self.members = bound, inputs, members
        self.weights, self.biases = ensemble((inputs, *hidden, 1), members, seed)
        width_L = hidden if layer_norm else ()
        self.gains = nn.ParameterList(nn.Parameter(torch.ones(members, 1, width)) for width in width_L)
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(members, 1, width)) for width in width_L)

    def forward(self, observation_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"]) -> Float[Tensor, "K M"]:
        x_KI = torch.cat([observation_KO, action_KA / self.bound], dim=-1)
        if x_KI.shape[1] != self.inputs:
            raise ValueError(
                f"the critic reads {self.inputs} numbers, but observation and action have {x_KI.shape[1]}: set "
                "update.critic.observations and update.critic.actions"
            )
        x_MKI = x_KI.expand(self.members, -1, -1)
        scales = list(zip(weights_of(self.gains), weights_of(self.shifts), strict=True))
        return through(x_MKI, self.weights, self.biases, nn.functional.relu, scales)[..., 0].T


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
