"""Values of actions: Q(o, a)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.policies.control import relu_mlp
from gimbal.policies.ensemble import ActionValueNetwork
from gimbal.policies.residual import ResidualActionValues, check_blocks


@dataclass(frozen=True, kw_only=True)
class ActionValues:
    """``members`` networks that value an action given an observation; the smaller value of two overestimates less than one.
    ``layer_norm`` (arXiv:1607.06450) before each ReLU bounds values far from the data by the last layer's weights. ``blocks``: each is
    a linear layer, so many residual blocks with layer norms of the one width in ``hidden``, and a linear layer (SimBa,
    arXiv:2410.09754; published: 2 of 512)."""

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    members: int = 2
    bound: float = 1.0  # of actions: what an input of 1 stands for
    layer_norm: bool = False
    blocks: int = 0

    def __post_init__(self) -> None:
        if self.members < 1 or not 0 < self.bound < math.inf:
            raise ValueError(
                f"ActionValues has members {self.members} (at least 1) and bound {self.bound} (above 0 and finite): the largest action"
            )

        check_blocks(self.hidden, self.blocks)
        if self.blocks and self.layer_norm:
            raise ValueError(
                f"ActionValues has layer_norm and blocks {self.blocks}, which have layer norms of their own: drop one"
            )

    def load(self, seed: int) -> ActionValueNetwork | ResidualActionValues:
        # A separate stream: the run's policy is initialised from the same seed.
        first = stable_hash("Q", seed) % 2**63
        inputs = self.observations + self.actions
        if self.blocks:
            return ResidualActionValues(inputs, self.hidden[0], self.blocks, self.members, self.bound, first)
        return ActionValueNetwork(inputs, self.hidden, self.members, self.bound, first, self.layer_norm)

    def loss(self, q_KM: Float[Tensor, "K M"], target_K: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        """sum_m (Q_m - y)^2."""
        return (q_KM - target_K[:, None]).square().sum(-1)

    def worth(self, q_KM: Float[Tensor, "K M"]) -> Float[Tensor, " K"]:
        """min_m Q_m."""
        return q_KM.min(-1).values

    def told(self, q_KM: Float[Tensor, "K M"]) -> Mapping[str, Float[Tensor, " K"]]:
        return {"q/mean": q_KM.mean(-1)}

    def of_states(self, name: str, seed: int) -> nn.Module:
        """A network of the same sizes that values an observation alone. Those of other names have other first weights."""
        return relu_mlp([self.observations, *self.hidden, 1], stable_hash(name, seed) % 2**63)
