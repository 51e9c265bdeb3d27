"""What a wrong answer shares with right ones is not penalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.ops.lots import first_by, lots
from gimbal.records import TrainBatch

FLAT = 1e-5  # a range of residuals below it tells no decision from another
FEWEST = 4  # decisions that span a subspace


@dataclass(frozen=True, kw_only=True)
class ResidualWeighted(AbstractAdvantage):
    """Weights decisions of bad rollouts by how far their hidden states lie outside the span of the good ones' (ResRL, ICML 2026).

    In each group with both kinds: y = LayerNorm(hidden) - mean over good decisions, V the leading right singular vectors of good y,
    at most ``rank``;  d = |y - V V^T y|^2 / H;  A' = w A on bad rollouts, w rising linearly from ``least`` at the ``low`` quantile of
    their d to 1 at the ``high`` one;  A' = positive A on good rollouts. A rollout is good if its advantages sum to more than 0, bad if
    to less. It refines W-REINFORCE (arXiv:2506.01347).

    - ``least`` = ``positive`` = 1: A.
    - ``least`` = 1: A with the good rollouts scaled, as SignedOutcome scales them.
    - all d of a group equal: w = (1 + least) / 2.
    - a group without good (or without bad) rollouts, or with fewer than 4 good decisions: bad rollouts keep A.

    A ``rank`` near the width of the hidden states leaves nothing outside. Published: ``least`` 0.1, ``positive`` 0.1, ``rank`` 64,
    ``low`` 0.2, ``high`` 0.8, ``most`` 4096, hidden states before the last layer; ours: those after it, and singular vectors without
    spread are dropped.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", "hidden_NSH", "group_N", "behavior_NS"})

    least: float = 0.1
    positive: float = 0.1
    rank: int = 64
    low: float = 0.2
    high: float = 0.8
    most: int = 4096  # good decisions of a group that are looked at, drawn at random

    def __post_init__(self) -> None:
        if not (0 <= self.least <= 1 and self.positive >= 0 and 0 <= self.low <= self.high <= 1):
            raise ValueError(
                f"ResidualWeighted has least {self.least} in [0, 1], positive {self.positive}, 0 or above, and quantiles "
                f"{self.low} and {self.high} in order within [0, 1]; one of them is not so"
            )
        if self.rank < 1 or self.most < FEWEST:
            raise ValueError(f"ResidualWeighted needs a rank of at least 1 and most of at least {FEWEST}")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NS, group_N = batch.column("advantage_NS", self), batch.column("group_N", self)
        lot_NS = lots(batch.column("behavior_NS", self), batch.mask_NS, "residual weighted")
        normal_NSH = torch.nn.functional.layer_norm(
            batch.column("hidden_NSH", self).double(), batch.column("hidden_NSH", self).shape[-1:]
        )
        sign_N = advantage_NS.sum(-1).sign()
        weight_NS = torch.ones_like(advantage_NS)
        weight_NS[sign_N > 0] = self.positive
        for label in group_N.unique() if self.least < 1 else ():
            good_NS = ((group_N == label) & (sign_N > 0))[:, None] & batch.mask_NS
            bad_NS = ((group_N == label) & (sign_N < 0))[:, None] & batch.mask_NS
            good_NS = first_by(good_NS, self.most, torch.zeros_like(lot_NS), lot_NS)
            if int(good_NS.sum()) >= FEWEST and bool(bad_NS.any()):
                weight_NS[bad_NS] = self._weights(normal_NSH, good_NS, bad_NS).to(weight_NS.dtype)
        return weight_NS * advantage_NS * batch.mask_NS

    def _weights(
        self, normal_NSH: Float[Tensor, "N S H"], good_NS: Bool[Tensor, "N S"], bad_NS: Bool[Tensor, "N S"]
    ) -> Float[Tensor, " K"]:
        good_MH = normal_NSH[good_NS]
        mean_H = good_MH.mean(0)
        _, spread_R, basis_RH = torch.linalg.svd(good_MH - mean_H, full_matrices=False)
        known = spread_R > spread_R[0] * max(good_MH.shape) * torch.finfo(torch.float32).eps
        basis_RH = basis_RH[known][: min(self.rank, len(good_MH) - 1)]
        offset_KH = normal_NSH[bad_NS] - mean_H
        residual_K = (offset_KH - offset_KH @ basis_RH.T @ basis_RH).square().mean(-1)
        low, high = residual_K.quantile(self.low), residual_K.quantile(self.high)
        if high - low < FLAT:
            return torch.full_like(residual_K, (1 + self.least) / 2)
        return self.least + (1 - self.least) * ((residual_K - low) / (high - low)).clamp(0, 1)
