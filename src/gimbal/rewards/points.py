"""Rewards of points in the plane: what a mixture of Gaussians says of them, whose modes and density are known exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.records import Rollout
from gimbal.rewards.samples import OTHER, AbstractSampleReward, finished

Kind = Literal["ring", "grid"]
STD, RADIUS, RARE = 0.3, 4.0, 0.1
LEAST = 0.02  # share of the samples that a mode holds where it is covered


@dataclass(frozen=True, kw_only=True)
class PointMixture:
    """Gaussians of one standard deviation: ``place_M2`` their means, ``share_M`` their probabilities."""

    place_M2: Float[Tensor, "M 2"]
    share_M: Float[Tensor, " M"]
    std: float = STD

    def draw(self, count: int) -> Float[Tensor, "K 2"]:
        """By torch's own generator."""
        mode_K = torch.multinomial(self.share_M, count, replacement=True)
        return self.place_M2[mode_K] + self.std * torch.randn(count, 2)

    def log_density(self, x_K2: Float[Tensor, "K 2"]) -> Float[Tensor, " K"]:
        """log sum_m share_m N(x; place_m, std^2)."""
        square_KM = (x_K2[:, None] - self.place_M2.to(x_K2)).square().sum(-1)
        each_KM = self.share_M.to(x_K2).log() - square_KM / (2 * self.std**2)
        return each_KM.logsumexp(-1) - math.log(2 * math.pi * self.std**2)


def mixture(kind: Kind) -> PointMixture:
    """``ring``: modes 0 to 7 on a circle of radius 4, counter-clockwise from the right, and mode 8 at its centre, a tenth as likely.
    ``grid``: nine alike, from (-4, -4) row by row to (4, 4).
    """
    if kind == "ring":
        turn_M = torch.arange(8) * math.pi / 4
        place_M2 = RADIUS * torch.stack([turn_M.cos(), turn_M.sin()], -1)
        weight_M = torch.tensor([1.0] * 8 + [RARE])
        return PointMixture(place_M2=torch.cat([place_M2, torch.zeros(1, 2)]), share_M=weight_M / weight_M.sum())
    line_3 = torch.tensor([-RADIUS, 0.0, RADIUS])
    return PointMixture(
        place_M2=torch.stack([line_3.repeat(3), line_3.repeat_interleave(3)], -1), share_M=torch.full((9,), 1 / 9)
    )


def points(x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N 2"]:
    """The same. ValueError where they are not of two numbers."""
    if x_ND.shape[1] != 2:
        raise ValueError(misfit(x_ND.shape[1]))
    return x_ND


def misfit(numbers: int) -> str:
    """Why samples of so many numbers are no points of the plane, and what to set; "" if they are."""
    if numbers == 2:
        return ""
    return f"rewards of points look at samples of two numbers (policy.model=gimbal-ring), and these have {numbers}: {OTHER}"


class AbstractPointReward(AbstractSampleReward):
    """Looks at points."""

    def misfit(self, numbers: int) -> str:
        return misfit(numbers)


@dataclass(frozen=True, kw_only=True)
class ModeNearness(AbstractPointReward):
    """How near a point is to one of the wanted modes: R(x) = max_m worth_m exp(-|x - c_m|^2 / (2 * 0.5^2)) over ``modes``.

    ``hole`` is an error of the reward, away from all data: it adds hole exp(-|x - (2, 2)|^2 / (2 * 0.6^2)), so that with 1.5 the
    highest reward is where no sample of the data is. 0 is the true reward.

    - one mode of worth 1, no hole: 1 at its mean, exp(-1/2) at a distance of 0.5.
    - far from every mode and the hole: 0.

    Samples are points of two numbers; ``of`` is the mixture that the modes are numbered by (``mixture``).
    """

    of: Kind = "ring"
    modes: tuple[int, ...] = (0, 3, 5, 8)
    worth: tuple[float, ...] = (1.0, 1.0, 1.0, 1.2)
    hole: float = 0.0
    name: str = "mode"

    def __post_init__(self) -> None:
        _numbered(self.modes, self.of, "ModeNearness")
        if len(self.worth) != len(self.modes):
            raise ValueError(
                f"ModeNearness.worth has {len(self.worth)} numbers for {len(self.modes)} modes; it must have one for each"
            )

    @property
    def decides(self) -> bool:
        return False

    def of_samples(self, x_ND: Float[Tensor, "N D"], label_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        x_N2 = points(x_ND)
        place_M2 = mixture(self.of).place_M2[list(self.modes)].to(x_N2)
        near_NM = torch.exp(-(x_N2[:, None] - place_M2).square().sum(-1) / (2 * 0.5**2))
        true_N = (x_N2.new_tensor(self.worth) * near_NM).amax(-1)
        return true_N + self.hole * torch.exp(-(x_N2 - 2.0).square().sum(-1) / (2 * 0.6**2))


@dataclass(frozen=True, kw_only=True)
class PointDensity(AbstractPointReward):
    """The log-density of the data at a point, in nats: a measure, not a goal, so its weight is 0. The ring's own samples
    have a mean of -2.6.

    Over many points it reports ``distance``, the mean distance to the nearest mode (0.38 of the data); and ``coverage``, the share of
    ``modes`` that have at least 2 in 100 of the points within three standard deviations (0.9).
    """

    of: Kind = "ring"
    modes: tuple[int, ...] = (0, 3, 5, 8)
    name: str = "data"
    weight: float = 0.0

    def __post_init__(self) -> None:
        _numbered(self.modes, self.of, "PointDensity")

    @property
    def decides(self) -> bool:
        return False

    def of_samples(self, x_ND: Float[Tensor, "N D"], label_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        return mixture(self.of).log_density(points(x_ND))

    def figures(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        data = mixture(self.of)
        apart_KM = torch.cdist(points(finished(rollouts)), data.place_M2)
        held_M = (apart_KM <= 3 * data.std).float().mean(0)[list(self.modes)]
        return {
            "distance": float(apart_KM.amin(-1).mean()),
            "coverage": float((held_M >= LEAST).float().mean()),
        }


def _numbered(modes: tuple[int, ...], of: Kind, name: str) -> None:
    count = len(mixture(of).place_M2)
    if not modes or any(not 0 <= mode < count for mode in modes) or len(set(modes)) < len(modes):
        raise ValueError(
            f"{name}.modes is {modes}; it must name each wanted mode of the {of} once, by a number from 0 to {count - 1}"
        )
