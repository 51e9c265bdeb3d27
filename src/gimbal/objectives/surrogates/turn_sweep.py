"""The turns of a rollout are updated one after another, the last one first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically, k3_of
from gimbal.records import Terms, TrainBatch

PRESENT = "turn_now"  # fact, the same for all rows: the turn whose update this is


@dataclass(frozen=True, kw_only=True)
class TurnSweep(AbstractObjective):
    """One ratio per turn and one update per turn, in reverse order: backward induction without a critic (SeeUPO, arXiv:2602.06554).

    For k = K..1, on the decisions of turn k only:  loss = -min(r_k M_k, clip(r_k, 1 - clip_low, 1 + clip_high) M_k),
    r_k = exp(pool_{t in k}(logprob - proximal)),  M_k = A clip(prod_{j > k} r_j, compound_low, compound_high) with the ratios of
    already updated turns at the current weights. A minibatch takes as many updates as its rollouts have turns. Use with GroupCentered
    (a division by the group's deviation loses the guarantee) and SequenceMean.

    - one turn: the clipped surrogate with the ratio of the sequence; ``how`` "mean" has the gradient of SequenceRatio.
    - ``order`` "together": all turns in one update and M = A, SequenceRatio for each turn.
    - a turn of one decision, "together": ClippedRatio.
    - ``order`` "forward" begins with the first turn, and compounds the turns before it.

    ``how`` "sum" is the turn's own ratio (PPO's bounds), "mean" its geometric mean (GSPO's bounds).

    Confidence: partial; ours: the compounding follows the theory of sequential updates, its bounds are our choice.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS"})

    clip_low: float = 0.2
    clip_high: float = 0.2
    how: Literal["sum", "mean"] = "sum"
    order: Literal["reverse", "forward", "together"] = "reverse"
    compound_low: float = 0.5
    compound_high: float = 2.0

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)
        if not 0 < self.compound_low <= 1 <= self.compound_high:
            raise ValueError(
                f"TurnSweep bounds the ratio of other turns to [{self.compound_low}, {self.compound_high}]; "
                "the bounds must be above 0 and hold 1, the ratio before any update"
            )

    def stages(self, batch: TrainBatch) -> Iterable[Mapping[str, Tensor]]:
        turns = sorted(set(batch.turns_NS[batch.mask_NS].tolist()), reverse=self.order == "reverse")
        if self.order == "together" or not turns:
            return ({},)
        rows_N = torch.ones(batch.shape[0], dtype=torch.long, device=batch.mask_NS.device)
        return tuple({PRESENT: turn * rows_N} for turn in turns)

    def counted(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        if PRESENT not in batch.facts:
            return batch.mask_NS
        return batch.mask_NS & (batch.turns_NS == batch.facts[PRESENT][:, None])

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).where(batch.mask_NS, 0)
        turn_NS = ops.pooled(log_ratio_NS, batch.mask_NS, "turn", batch.turns_NS, self.how)
        ratio_NS = ops.log_ratio(turn_NS, torch.zeros_like(turn_NS)).exp()
        scaled_NS = batch.column("advantage_NS", self) * self._compound(log_ratio_NS.detach(), batch)
        surrogate_NS, clipped = clip_pessimistically(ratio_NS, scaled_NS, self.clip_low, self.clip_high)
        return Terms((-surrogate_NS).where(self.counted(batch), 0), clipped | {"kl/old": k3_of(log_ratio_NS.detach())})

    def _compound(self, log_ratio_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Float[Tensor, "N S"]:
        """The clipped product of the ratios of all turns that come before a decision's own turn in the sweep."""
        if self.order == "together":
            return torch.ones_like(log_ratio_NS)
        total_NU = log_ratio_NS.new_zeros(log_ratio_NS.shape[0], int(batch.turns_NS.max()) + 1)
        total_NU = total_NU.scatter_add(1, batch.turns_NS, log_ratio_NS)
        if self.order == "reverse":
            done_NU = total_NU.flip(-1).cumsum(-1).flip(-1) - total_NU
        else:
            done_NU = total_NU.cumsum(-1) - total_NU
        low, high = math.log(self.compound_low), math.log(self.compound_high)
        return done_NU.clamp(low, high).exp().gather(1, batch.turns_NS)
