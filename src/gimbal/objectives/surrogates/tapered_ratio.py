"""Imitate what went well, without a ratio; push away what went badly, less and less as it becomes unlikely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import k3_of
from gimbal.ops import Level
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class TaperedRatio(AbstractObjective):
    """A policy gradient with weight 1 on good decisions; on bad ones the ratio of their chunk, at most 1 (IPA, arXiv:2512.24873).

    loss = -sg[v] A logprob;  v = 1 where A > 0, else min(rho, 1), rho = exp(pool(logprob - proximal)) over the decision's chunk, which
    is a turn by default. Decisions that have become unlikely are no longer pushed down, so the negative part stays bounded on stale
    data.

    - one turn: ``level`` "sequence".
    - ``level`` "token": a ratio for each decision.
    - logprob = proximal, or no A < 0: Reinforce.
    - ``level`` "sequence", ``how`` "sum" and the anchor Behavior: tapered off-policy REINFORCE (TOPR, arXiv:2503.14286).

    Use with TurnDiscount (a chunk's credit) and DiscrepancyBand (chunks that sampler and trainer see differently), as IPA does.

    Confidence: partial; ours: where IPA uses the sign of the return, we use the sign of the advantage.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS"})

    level: Level = "turn"
    how: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        if self.level not in ("token", "turn", "sequence") or self.how not in ("mean", "sum"):
            raise ValueError(
                f"TaperedRatio takes the {self.how} over a {self.level}; choose mean or sum over token, turn or sequence"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).detach().where(batch.mask_NS, 0)
        advantage_NS = batch.column("advantage_NS", self)
        chunk_NS = ops.pooled(log_ratio_NS, batch.mask_NS, self.level, batch.turns_NS, self.how)
        weight_NS = chunk_NS.clamp(max=0).exp().where(advantage_NS < 0, 1)
        metrics = {
            "taper": weight_NS,
            "clip_ratio/high": ((advantage_NS < 0) & (chunk_NS > 0)).float(),
            "kl/old": k3_of(log_ratio_NS),
        }
        return Terms((-weight_NS * advantage_NS * logprob_NS).where(batch.mask_NS, 0), metrics)
