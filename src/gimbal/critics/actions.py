"""Values of actions: Q(o, a)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.ops.weights import weights_of
from gimbal.policies.ensemble import ensemble, through


class ActionValueNetwork(nn.Module):
    """Q_m(o, a) for M networks of the same sizes at once: linear layers with ReLU between them on [o, a / ``bound``].
    ``layer_norm``: each ReLU sees g (x - mean) / spread + c, over the units of its layer, with g and c of each unit."""

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], members: int, bound: float, seed: int, layer_norm: bool = False
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
        scales = zip(weights_of(self.gains), weights_of(self.shifts), strict=True)

        def activation(x_MKJ: Tensor) -> Tensor:
            gain_M1J, shift_M1J = next(scales)
            return torch.addcmul(shift_M1J, gain_M1J, nn.functional.layer_norm(x_MKJ, x_MKJ.shape[-1:])).relu()

        between = activation if len(self.gains) else nn.functional.relu
        return through(x_MKI, self.weights, self.biases, between)[..., 0].T


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
        own = (self.observations + self.actions, self.hidden, self.members, self.bound, stable_hash("Q", seed) % 2**63)
        return ActionValueNetwork(*own, layer_norm=self.layer_norm)
