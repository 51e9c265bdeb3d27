"""Rewards of pictures of one shape, 16x16 pixels in colour: a program reads shape, colour and size from the pixels.

A picture is one of 1,872 drawings: a square, a disc or a cross, red, green or blue, small (5 pixels wide) or large (9), anywhere that
it fits on black. ``gimbal-shapes`` draws them by class: 6 shape + 2 colour + size, each counted from 0 (``number``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.records import Rollout
from gimbal.rewards.samples import OTHER, AbstractSampleReward, finished

SIDE = 16
Attribute = Literal["shape", "colour", "size"]
VALUES: dict[Attribute, tuple[str, ...]] = {
    "shape": ("square", "disc", "cross"),
    "colour": ("red", "green", "blue"),
    "size": ("small", "large"),
}
RADIUS = (2, 4)  # pixels from the middle to the edge, by size
COUNT = 18


def number(shape: str, colour: str, size: str) -> int:
    """The class of such a shape."""
    places = [values.index(value) for values, value in zip(VALUES.values(), (shape, colour, size), strict=True)]
    return 6 * places[0] + 2 * places[1] + places[2]


def attributes(class_N: Int[Tensor, " N"]) -> Int[Tensor, "N 3"]:
    """The places of shape, colour and size among their values."""
    return torch.stack([class_N // 6, class_N // 2 % 3, class_N % 2], -1)


@cache
def drawings() -> tuple[Float[Tensor, "K 768"], Int[Tensor, " K"]]:
    """All pictures, flat, from -1 to 1, and their classes."""
    found, classes = list[Tensor](), list[int]()
    line = torch.arange(SIDE)
    for shape, colour, size in product(*(range(len(values)) for values in VALUES.values())):
        radius = RADIUS[size]
        for y, x in product(range(radius, SIDE - radius), repeat=2):
            down, across = (line - y).abs()[:, None], (line - x).abs()[None]
            inside = {
                0: (down <= radius) & (across <= radius),
                1: down.square() + across.square() <= radius**2 + 1,
                2: ((down <= radius // 2 - 1) & (across <= radius)) | ((across <= radius // 2 - 1) & (down <= radius)),
            }[shape]
            picture = torch.full((3, SIDE, SIDE), -1.0)
            picture[colour][inside] = 1.0
            found.append(picture.flatten())
            classes.append(6 * shape + 2 * colour + size)
    return torch.stack(found), torch.tensor(classes)


def misfit(numbers: int) -> str:
    """Why samples of so many numbers are no pictures of shapes, and what to set; "" if they may be."""
    if numbers == 3 * SIDE * SIDE:
        return ""
    return (
        f"rewards of shapes look at samples of {SIDE}x{SIDE} pixels in three channels (policy.model=gimbal-shapes), and these have "
        f"{numbers} numbers: {OTHER}"
    )


def read(x_ND: Float[Tensor, "N D"]) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
    """(distance to the nearest drawing, its class). ValueError where the samples are of another size."""
    drawing_KD, class_K = (part.to(x_ND.device) for part in drawings())
    if why := misfit(x_ND.shape[1]):
        raise ValueError(why)
    apart_N, nearest_N = torch.cdist(x_ND, drawing_KD).min(-1)
    return apart_N, class_K[nearest_N]


class AbstractShapeReward(AbstractSampleReward):
    """Looks at pictures of shapes."""

    def misfit(self, numbers: int) -> str:
        return misfit(numbers)


@dataclass(frozen=True, kw_only=True)
class ShapeAttributes(AbstractShapeReward):
    """Whether a picture has the attributes asked for: shape, colour and size of the nearest drawing, against the class of the task
    (column ``label``), or against ``wanted``.

    ``scale`` "share" is the share of the attributes in ``only`` that are right, "all" 1 where all are, else 0. A policy that is paid
    for attributes need not draw clean shapes: keep ``ShapeDistance`` beside it.

    - one attribute: both scales are the same.
    - a drawing of the class asked for: 1.
    """

    wanted: int = -1
    only: tuple[Attribute, ...] = ("shape", "colour", "size")
    scale: Literal["share", "all"] = "share"
    name: str = "shape"

    def __post_init__(self) -> None:
        if not -1 <= self.wanted < COUNT:
            raise ValueError(
                f"ShapeAttributes.wanted is {self.wanted}; classes are 0 to {COUNT - 1}, and -1 is that of the task"
            )
        if not self.only or not set(self.only) <= set(get_args(Attribute)) or len(set(self.only)) < len(self.only):
            raise ValueError(f"ShapeAttributes.only is {self.only}; name each of {', '.join(VALUES)} once at most")

    @property
    def flat(self) -> str:
        return "it counts attributes, which hardly any change of a sample changes: use an update that reads its values"

    def of_samples(self, x_ND: Float[Tensor, "N D"], label_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        wanted_N = label_N if self.wanted < 0 else torch.full_like(label_N, self.wanted)
        if ((wanted_N < 0) | (wanted_N >= COUNT)).any():
            raise ValueError(
                f"reward {self.name} reads a class from 0 to {COUNT - 1} of the task, which has none: set wanted, or "
                "tasks.labels=[...]"
            )
        places = [tuple(VALUES).index(name) for name in self.only]
        right_NA = (attributes(read(x_ND)[1]) == attributes(wanted_N))[:, places].float()
        return right_NA.mean(-1) if self.scale == "share" else right_NA.amin(-1)


@dataclass(frozen=True, kw_only=True)
class ShapeDistance(AbstractShapeReward):
    """How far a picture is from the nearest of all drawings (Euclidean, pixels from -1 to 1), reported as ``distance``: a measure, so
    its weight is 0; with a weight below 0 pictures are paid for being clean.

    - a drawing: 0.
    """

    name: str = "data"
    weight: float = 0.0

    @property
    def decides(self) -> bool:
        return False

    def of_samples(self, x_ND: Float[Tensor, "N D"], label_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        return read(x_ND)[0]

    def figures(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        return {"distance": float(read(finished(rollouts))[0].mean())}
