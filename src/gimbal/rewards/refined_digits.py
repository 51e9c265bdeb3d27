"""Rewards for digits drawn again from their means over blocks of pixels (tasks=ShownPictures(kinds=("refine",)))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.records import Group, Task
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.digits import SIDE, digits, images
from gimbal.rewards.samples import finished

TEXTURED = 0.6  # of the standard deviation in 3x3 pixels from -1 to 1: half of the pixels of real digits have more


def wanted(task: Task) -> Float[Tensor, " 64"]:
    """The whole picture behind a task. ValueError where it has none."""
    picture = task.columns.get("picture")
    if not isinstance(picture, tuple) or len(picture) != SIDE * SIDE:
        raise ValueError(
            f"this reward compares with the 8x8 pixels in a task's column picture, which task {task.id} does not have: "
            'tasks=ShownPictures(kinds=("refine",))'
        )
    return torch.tensor(picture, dtype=torch.float32)


def fidelity(x_ND: Float[Tensor, "N 64"], picture_D: Float[Tensor, " 64"]) -> Float[Tensor, " N"]:
    """PSNR in dB: 10 log10(4 / mean squared error) of pixels from -1 to 1."""
    return -10 * ((x_ND - picture_D).square().mean(-1) / 4).clamp(min=1e-10).log10()


def textured(picture_D: Float[Tensor, " 64"]) -> float:
    """The share of pixels around which, in 3x3 of them, the standard deviation is above TEXTURED."""
    pool, flat = torch.nn.functional.avg_pool2d, picture_D.reshape(1, 1, SIDE, SIDE)
    around = torch.nn.functional.pad(flat, (1, 1, 1, 1), mode="replicate")
    variance = pool(around.square(), 3, 1) - pool(around, 3, 1).square()
    return float((variance > TEXTURED**2).float().mean())


def from_0_to_1(x_N: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """(x - min) / (max - min); 0 where all are equal."""
    least, most = x_N.min(), x_N.max()
    return (x_N - least) / (most - least) if most > least else torch.zeros_like(x_N)


@dataclass(frozen=True, kw_only=True)
class Fidelity(AbstractReward):
    """How near a sample is to the picture that its task was made of: PSNR in dB. A measure, so its weight is 0."""

    name: str = "psnr"
    weight: float = 0.0

    @property
    def decides(self) -> bool:
        return False

    def accepts(self, task: Task) -> None:
        wanted(task)

    def __call__(self, group: Group) -> list[float | None]:
        return [float(x) for x in fidelity(images(finished(group.rollouts)), wanted(group.task))]


@dataclass(frozen=True, kw_only=True)
class TextureAdaptive(AbstractReward):
    """Fidelity where a picture is smooth, and a look of the real where it is textured (GDPO-SR, arXiv:2603.16769).

    r_i = (1 - a) mm(PSNR_i) + a mm(q_i), a the share of the picture's pixels that are textured, q a judge that has no picture to
    compare with, mm(x) = (x - min) / (max - min) over the group.

    - a = 0, a smooth picture: the ranking of PSNR. a = 1: that of q.
    - all samples of a group alike: r = 0.
    - adding a constant to PSNR or q, or another unit: the same r.

    Published: q is the mean of two learned judges of photographs. Here it is minus the distance to the nearest even row of the
    digits, and a pixel is textured if the standard deviation of the 3x3 around it is above 0.6.

    Confidence: verified; ours: q and what is textured.
    """

    by_group: ClassVar[bool] = True
    is_method: ClassVar[bool] = True

    name: str = "texture"

    def accepts(self, task: Task) -> None:
        wanted(task)

    def __call__(self, group: Group) -> list[float | None]:
        x_ND, picture_D = images(finished(group.rollouts)), wanted(group.task)
        real_N = -torch.cdist(x_ND, digits()[0][::2]).amin(-1)
        share = textured(picture_D)
        score_N = (1 - share) * from_0_to_1(fidelity(x_ND, picture_D)) + share * from_0_to_1(real_N)
        return [float(x) for x in score_N]
