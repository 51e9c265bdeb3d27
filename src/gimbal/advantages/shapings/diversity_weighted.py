"""Good samples unlike the others gain more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class DiversityWeighted(AbstractAdvantage):
    """Multiplies positive advantages by how far a sample is from the others of its group (GARDO, arXiv:2512.24138).

    A'_i = A_i d_i / mean_g d where A_i > 0, else A_i; d is the score ``name``, 0 or above, such as that of rewards.SampleNovelty.

    - d the same for all samples of a group, or 0 for all: A.
    - A <= 0: A, so that a bad sample is not rewarded for being different.

    The paper writes A d; its code divides by the mean, as here. Without a gate on samples of doubtful reward (GatedStepKL), it leads
    to regions where the reward is wrong: no other sample is there.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", "group_N"})
    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    name: str = "novelty"

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NS = batch.column("advantage_NS", self)
        apart_N = batch.column(f"score/{self.name}", self).clamp(min=0)
        mean_N = ops.group_mean(apart_N, batch.column("group_N", self))
        factor_N = (apart_N / mean_N).where(mean_N > 0, 1)
        return advantage_NS * factor_N[:, None].where(advantage_NS > 0, 1) * batch.mask_NS
