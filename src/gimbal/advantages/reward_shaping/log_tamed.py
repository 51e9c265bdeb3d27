"""Rewards of a large relative spread are compressed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.advantages.base import AbstractRewardShaping
from gimbal.advantages.components import added_at_end, check_weights, components, weights_of
from gimbal.composition import Advice, Composition, Verdict
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class LogTamed(AbstractRewardShaping):
    """Takes the logarithm of a heavy-tailed reward, so that it does not dominate the sum (PaCo-GRPO, arXiv:2512.04784).

    h_k = std r_k / (mean r_k + eps) over all rollouts of the batch; where h_k > limit, the weighted sum of rewards gets
    w_k (log(1 + r_k) - r_k) added on the last decision of a row. ``limit`` is the mean or the median of all h, or a number.
    ``rewards`` are names, () being all; ``weights``, in their order, must be the rewards' own (() is 1 each).

    - one reward, or all h equal: the rewards as they are.
    - ``limit`` = inf: the rewards as they are.
    - a reward at 0 stays 0; rewards in [0, 1] change little.

    Published: ``limit`` "mean", ``eps`` 1e-6, rewards at or above 0; ours: -log(1 - r) below 0, and |mean| in h.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS"})
    names_rewards: ClassVar[tuple[str, ...]] = ("rewards",)

    rewards: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    limit: Literal["mean", "median"] | float = "mean"
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_weights(self, self.rewards, self.weights)
        if isinstance(self.limit, str) and self.limit not in ("mean", "median"):
            raise ValueError(f"LogTamed.limit is {self.limit!r}; choose mean, median or a number")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        scores = components(batch, self.rewards, self)
        value_KN = torch.stack(list(scores.values()))
        change_KN = value_KN.sign() * value_KN.abs().log1p() - value_KN
        change_N = weights_of(scores, self.weights) @ change_KN.where(self._tamed_K(value_KN)[:, None], 0)
        return added_at_end(batch, change_N, self)

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        scores = components(batch, self.rewards, self)
        tamed_K = self._tamed_K(torch.stack(list(scores.values())))
        return {f"tamed/{name}": float(tamed) for name, tamed in zip(scores, tamed_K, strict=True)}

    def _tamed_K(self, value_KN: Float[Tensor, "K N"]) -> Bool[Tensor, " K"]:
        n = value_KN.shape[1]
        spread_K = (value_KN - value_KN.mean(-1, keepdim=True)).square().sum(-1).div(n).sqrt()
        h_K = spread_K / (value_KN.mean(-1).abs() + self.eps)
        if isinstance(self.limit, str):
            limit = h_K.mean() if self.limit == "mean" else h_K.quantile(0.5)
        else:
            limit = h_K.new_tensor(self.limit)
        # Equal h are equal to their mean but for rounding.
        return h_K > limit * (1 + 1e-9)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        given = {reward.name: reward.weight for reward in whole.run.rewards}
        names = self.rewards or tuple(sorted(given))
        weights = self.weights or (1.0,) * len(names)
        if any(weight != given.get(name) for name, weight in zip(names, weights, strict=True)):
            yield Advice(
                "LogTamed's weights differ from those of its rewards, so it subtracts other amounts than they added"
            )
