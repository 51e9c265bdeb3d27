"""Good answers that were unlikely gain more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class NoveltySharpened(AbstractAdvantage):
    """Raises the advantage of rollouts that are above the baseline and less likely than their group (XRPO, arXiv:2510.06672).

    A' = A + min(max(strength (1 - eta), 0), cap A) where A > 0, else A; eta = exp(s - mean_g s), s the mean log-probability of the
    rollout's decisions under the anchor.

    - ``strength`` = 0 or ``cap`` = 0: A.
    - eta >= 1 (as likely as its group, or alone in it), or A <= 0: A.
    - signs stay, and A' <= (1 + cap) A.

    Confidence: partial; ours: ``strength`` 1, ``cap`` 0.5, and leaving A <= 0 unchanged.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", "proximal_NS", "group_N"})

    strength: float = 1.0
    cap: float = 0.5

    def __post_init__(self) -> None:
        if self.strength < 0 or self.cap < 0:
            raise ValueError(
                f"NoveltySharpened has strength {self.strength} and cap {self.cap}; both are 0 (off) or above"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NS = batch.column("advantage_NS", self)
        score_N = ops.sequence_mean(batch.column("proximal_NS", self), batch.mask_NS)
        eta_N = (score_N - ops.group_mean(score_N, batch.column("group_N", self))).clamp(max=0).exp()
        bonus_NS = (self.strength * (1 - eta_N))[:, None].minimum(self.cap * advantage_NS)
        return (advantage_NS + bonus_NS.clamp(min=0)) * batch.mask_NS
