"""Pictures in scales, as text: the same picture in few pixels, then in more, one letter for each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import torch
from jaxtyping import Float
from torch import Tensor

LEVELS = "abcdefghi"  # from -1 to 1


def spelled(picture_D: Float[Tensor, " D"], sides: Sequence[int]) -> str:
    """A square picture at each of these sides, by means over blocks of pixels, to the nearest level. ValueError where a side does not
    divide the picture's."""
    whole = isqrt(len(picture_D))
    if whole * whole != len(picture_D) or any(side < 1 or whole % side for side in sides):
        raise ValueError(
            f"a picture of {len(picture_D)} pixels is not drawn with sides of {list(sides)}: give divisors"
        )
    picture_11HW = picture_D.reshape(1, 1, whole, whole)
    if not picture_D.isfinite().all():
        raise ValueError("a picture with values that are not finite cannot be drawn in levels")
    scales = [torch.nn.functional.avg_pool2d(picture_11HW, whole // side).flatten() for side in sides]
    level_K = ((torch.cat(scales).clamp(-1, 1) + 1) * (len(LEVELS) - 1) / 2).round().long()
    return "".join(LEVELS[level] for level in level_K.tolist())


def pictured(text: str) -> Float[Tensor, " D"] | None:
    """The pixels of a text of levels; None where it holds anything else."""
    if not text or not set(text) <= set(LEVELS):
        return None
    return torch.tensor([LEVELS.index(letter) for letter in text]) * (2 / (len(LEVELS) - 1)) - 1
