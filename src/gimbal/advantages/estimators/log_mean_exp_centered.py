"""A baseline between the group's mean and its best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class LogMeanExpCentered(AbstractAdvantage):
    """The group's log-mean-exp as baseline (OPMD's other baseline, as used in R3L, arXiv:2601.03715).

    A_i = R_i - temperature log mean_g exp(R / temperature).

    - ``temperature`` = inf: GroupCentered.
    - ``temperature`` = 0: R_i - max_g R, which is never above 0.
    - all rewards of a group equal, or a group of one: A = 0.

    Published: ``temperature`` 1.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})
    per_episode: ClassVar[bool] = True

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(
                f"LogMeanExpCentered.temperature is {self.temperature}; it runs from 0 (the best) to inf (the mean)"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return_N, group_N = batch.return_N, batch.column("group_N", self)
        precise_N = return_N.double()
        label_N = torch.unique(group_N, return_inverse=True)[1]
        best_N = precise_N.new_full((len(label_N),), -math.inf).scatter_reduce(0, label_N, precise_N, "amax")[label_N]
        if math.isinf(self.temperature):
            baseline_N = ops.group_mean(precise_N, group_N)
        elif self.temperature == 0:
            baseline_N = best_N
        else:
            share_N = ops.group_mean(((precise_N - best_N) / self.temperature).exp(), group_N)
            baseline_N = best_N + self.temperature * share_N.log()
        return (precise_N - baseline_N).to(return_N.dtype)[:, None] * batch.mask_NS
