"""Networks of the same sizes side by side, each with weights of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.ops.weights import weights_of
from gimbal.policies.control import filled


def ensemble(sizes: Sequence[int], members: int, seed: int) -> tuple[nn.ParameterList, nn.ParameterList]:
    """Weights [M, I, J] and biases [M, 1, J] of each linear layer. Every member draws for itself, as torch does for such a layer:
    uniform up to 1 / sqrt(inputs)."""
    generator = torch.Generator().manual_seed(seed)
    weights, biases = nn.ParameterList(), nn.ParameterList()
    for inputs, outputs in pairwise(filled(sizes)):
        reach = 1 / math.sqrt(inputs)
        for own, shape in ((weights, (members, inputs, outputs)), (biases, (members, 1, outputs))):
            own.append(nn.Parameter((2 * torch.rand(shape, generator=generator) - 1) * reach))
    return weights, biases


def through(
    x_MKI: Float[Tensor, "M K I"],
    weights: nn.ParameterList,
    biases: nn.ParameterList,
    activation: Callable[[Tensor], Tensor],
    scales: Sequence[tuple[Tensor, Tensor]] = (),
) -> Float[Tensor, "M K J"]:
    """The layers' output; ``activation`` is between them. ``scales``: before it each layer's units are normalised (layer norm), and
    multiplied and shifted by these [M, 1, J] of the layer."""
    for number, (weight_MIJ, bias_M1J) in enumerate(zip(weights_of(weights), weights_of(biases), strict=True)):
        x_MKI = torch.baddbmm(bias_M1J, x_MKI, weight_MIJ)
        last = number == len(weights) - 1
        if scales and not last:
            gain_M1J, shift_M1J = scales[number]
            x_MKI = torch.addcmul(shift_M1J, gain_M1J, nn.functional.layer_norm(x_MKI, x_MKI.shape[-1:]))
        x_MKI = x_MKI if last else activation(x_MKI)
    return x_MKI


def seen_and_done(
    observation_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"], bound: float, inputs: int
) -> Float[Tensor, "K I"]:
    """[o, a / ``bound``], what a critic reads, or ValueError."""
    x_KI = torch.cat([observation_KO, action_KA / bound], dim=-1)
    if x_KI.shape[1] != inputs:
        raise ValueError(
            f"the critic reads {inputs} numbers, but observation and action have {x_KI.shape[1]}: set "
            "update.critic.observations and update.critic.actions"
        )
    return x_KI


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
        x_KI = seen_and_done(observation_KO, action_KA, self.bound, self.inputs)
        x_MKI = x_KI.expand(self.members, -1, -1)
        scales = list(zip(weights_of(self.gains), weights_of(self.shifts), strict=True)) if self.gains else ()
        # In place: what it is of is needed nowhere else, and another tensor would take as long as the sums.
        return through(x_MKI, self.weights, self.biases, torch.relu_, scales).squeeze(-1).T
