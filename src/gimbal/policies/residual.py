"""Networks of residual blocks, which can be made wider and deeper where a plain one gets worse (SimBa, arXiv:2410.09754)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.policies.control import filled, output_of, relu_mlp
from gimbal.policies.ensemble import seen_and_done

WIDER = 4  # inside of a block


class ResidualBlock(nn.Module):
    """x + D relu(U LN(x)): U widens ``WIDER`` times, D narrows again. He-normal weights, zero biases."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, WIDER * width), nn.Linear(WIDER * width, width)
        for linear in (self.up, self.down):
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu", generator=generator)
            nn.init.zeros_(linear.bias)

    def forward(self, x_BD: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        # Past torch's hooks for modules, as in ``output_of``.
        return x_BD + self.down.forward(self.up.forward(self.norm.forward(x_BD)).relu())


def residual_mlp(inputs: int, width: int, outputs: int, blocks: int, seed: int) -> nn.Sequential:
    """A linear layer to ``width``, ``blocks`` residual blocks, a layer norm, a linear layer: the outer two orthogonal, of gain 1."""
    generator = torch.Generator().manual_seed(seed)
    filled((inputs, width, outputs))
    first, last = nn.Linear(inputs, width), nn.Linear(width, outputs)
    for linear in (first, last):
        nn.init.orthogonal_(linear.weight, generator=generator)
        nn.init.zeros_(linear.bias)
    return nn.Sequential(first, *(ResidualBlock(width, generator) for _ in range(blocks)), nn.LayerNorm(width), last)


def trunk(inputs: int, hidden: Sequence[int], outputs: int, blocks: int, seed: int) -> nn.Sequential:
    """``relu_mlp`` of these layers, or ``blocks`` residual blocks of the one width in ``hidden``."""
    if blocks:
        check_blocks(hidden, blocks)
        return residual_mlp(inputs, hidden[0], outputs, blocks, seed)
    return relu_mlp([inputs, *hidden, outputs], seed)


def check_blocks(hidden: Sequence[int], blocks: int) -> None:
    if blocks < 0 or (blocks and len(hidden) != 1):
        raise ValueError(
            f"blocks is {blocks} and hidden has {len(hidden)} widths: residual blocks are of one width, as in blocks=2 hidden=[128], "
            "and blocks=0 is a plain network"
        )


class ResidualActionValues(nn.Module):
    """Q_m(o, a) for M such networks, each on [o, a / ``bound``]. One after the other: at their widths that takes little longer."""

    def __init__(self, inputs: int, width: int, blocks: int, members: int, bound: float, seed: int) -> None:
        super().__init__()
        self.seen = partial(seen_and_done, bound=bound, inputs=inputs)
        self.nets = nn.ModuleList(
            residual_mlp(inputs, width, 1, blocks, stable_hash("member", member, seed) % 2**63)
            for member in range(members)
        )

    def forward(self, observation_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"]) -> Float[Tensor, "K M"]:
        x_KI = self.seen(observation_KO, action_KA)
        return torch.cat([output_of(net, x_KI) for net in self.nets], dim=-1)  # pyrefly: ignore
