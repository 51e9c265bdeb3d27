"""What a task shows of a picture: its pixels, and in a last channel how much of each is known."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


def hole(places: np.random.Generator, side: int, size: int) -> Bool[Tensor, "H W"]:
    """What is known around a square at a random place."""
    known_HW = torch.ones(side, side, dtype=torch.bool)
    top, left = (int(x) for x in places.integers(side - size + 1, size=2))
    known_HW[top : top + size, left : left + size] = False
    return known_HW


def half(places: np.random.Generator, side: int) -> Bool[Tensor, "H W"]:
    """The left, right, upper or lower half is known."""
    known_HW = torch.zeros(side, side, dtype=torch.bool)
    known_HW[: side // 2] = True
    return known_HW.rot90(int(places.integers(4)))


def shown(x_D: Float[Tensor, "C H W"], known_HW: Bool[Tensor, "H W"]) -> Float[Tensor, "D H W"]:
    """The picture where it is known and 0 elsewhere; then 1 and 0 for the same."""
    return torch.cat([x_D * known_HW, known_HW[None].float()])


def coarse(x_D: Float[Tensor, "C H W"], block: int) -> Float[Tensor, "D H W"]:
    """Its means over blocks of pixels, enlarged; then the share of numbers that are known, everywhere."""
    mean_D = torch.nn.functional.avg_pool2d(x_D, block).repeat_interleave(block, 1).repeat_interleave(block, 2)
    return torch.cat([mean_D, torch.full_like(mean_D[:1], 1 / block**2)])
