"""How much a finished sample differs from the others of its group."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.samples import finished


@dataclass(frozen=True, kw_only=True)
class SampleNovelty(AbstractReward):
    """The distance of a sample to its nearest neighbour in the group: a measure that DiversityWeighted reads, so its weight is 0.

    ``by`` "euclidean" is the distance between the raw values, "cosine" one minus their cosine similarity. Published: cosine, on the
    features of a large vision model.

    - a group of one: 0.
    - two equal samples: 0 for both.
    """

    by: str = "euclidean"
    name: str = "novelty"
    weight: float = 0.0

    def __post_init__(self) -> None:
        if self.by not in ("euclidean", "cosine"):
            raise ValueError(f"SampleNovelty.by is {self.by}; choose euclidean or cosine")

    def __call__(self, group: Group) -> list[float | None]:
        x_KD = finished(group.rollouts)
        if len(x_KD) < 2:
            return [0.0] * len(x_KD)
        if self.by == "cosine":
            unit_KD = torch.nn.functional.normalize(x_KD, dim=-1)
            apart_KK = (1 - unit_KD @ unit_KD.T).clamp(min=0)
        else:
            apart_KK = torch.cdist(x_KD, x_KD)
        return apart_KK.masked_fill(torch.eye(len(x_KD), dtype=torch.bool), torch.inf).amin(-1).tolist()
