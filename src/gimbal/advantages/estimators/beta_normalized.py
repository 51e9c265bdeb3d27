"""Scale by a Beta density at the task's success rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.components import components
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class BetaNormalized(AbstractAdvantage):
    """Scales advantages by a Beta density fitted to the batch's success rates (BNPO, arXiv:2506.02864).

    p = mean_g r, A_i = (r_i - p) min(1 / f(p; alpha, beta), max_weight), f the Beta density; alpha = max(1, 1 + a/3), beta = max(1,
    1 + b/3), where Beta(a, b) has the mean m and the variance v (ddof 1) of p over the groups: a = (m(1-m)/v - 1) m,
    b = (m(1-m)/v - 1)(1-m). With ``rewards``, A is the mean of this over the named rewards, each with its own p, alpha and beta.
    Rewards are mapped to [0, 1] by the batch's minimum and maximum.

    - alpha = beta = 1 (one group, or all p equal): f = 1, GroupCentered.
    - alpha = beta = 3/2: pi/8 times GroupNormalized (ddof 0) for binary rewards.
    - all rewards of a group equal, or a group of one: A = 0.

    Published: ``max_weight`` 1e6. With large alpha and beta, f is small at rare p: watch ``beta/max_weight``.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})
    per_episode: ClassVar[bool] = True
    names_rewards: ClassVar[tuple[str, ...]] = ("rewards",)

    rewards: tuple[str, ...] = ()
    max_weight: float = 1e6

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return self._normalised(batch)[0].float()[:, None] * batch.mask_NS

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        return self._normalised(batch)[1]

    def _normalised(self, batch: TrainBatch) -> tuple[Float[Tensor, " N"], dict[str, float]]:
        total_N, group_N = batch.return_N, batch.column("group_N", self)
        named = components(batch, self.rewards, self) if self.rewards else {"return": total_N.double()}
        parts = [self._of(reward_N, group_N) for reward_N in named.values()]
        mean_N = torch.stack([advantage_N for advantage_N, _ in parts]).mean(0)
        most = {f"beta/{key}": max(found[key] for _, found in parts) for key in ("alpha", "beta", "max_weight")}
        return mean_N, most

    def _of(
        self, reward_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, " N"], dict[str, float]]:
        span = reward_N.max() - reward_N.min()
        unit_N = ((reward_N - reward_N.min()) / span).where(span > 0, 0)
        rate_N = ops.group_mean(unit_N, group_N)
        alpha, beta = _shape(rate_N, group_N)
        # Beyond rounding, a mean of numbers in [0, 1] lies there.
        inside_N = rate_N.clamp(0, 1)
        log_f_N = torch.xlogy(alpha - 1, inside_N) + torch.xlogy(beta - 1, 1 - inside_N) - _log_beta(alpha, beta)
        weight_N = (-log_f_N).exp().clamp(max=self.max_weight)
        advantage_N = ops.group_normalised(unit_N, group_N, scale="none") * weight_N
        found = {"alpha": float(alpha), "beta": float(beta), "max_weight": float(weight_N.max())}
        return advantage_N, found


def _shape(rate_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> tuple[Tensor, Tensor]:
    """alpha and beta of the normaliser from the moments of the groups' success rates, each group counted once."""
    share_N = 1 / ops.group_size(group_N).double()
    groups = share_N.sum()
    mean = (share_N * rate_N).sum() / groups
    variance = (share_N * (rate_N - mean).square()).sum() / (groups - 1).clamp(min=1)
    strength = mean * (1 - mean) / variance - 1
    fits = (variance > 1e-12) & (groups > 1.5)
    alpha, beta = (
        (1 + strength * part / 3).where(fits, torch.ones_like(mean)).clamp(min=1) for part in (mean, 1 - mean)
    )
    return alpha, beta


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)
