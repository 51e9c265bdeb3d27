"""One decision that has moved too far holds back its whole turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically, k3_of
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class GuardedTurns(AbstractObjective):
    """The clipped surrogate; turns where a ratio exceeds ``guard`` use only the clipped term (VL-DAC, arXiv:2508.04280).

    loss = -clip(r, 1 - clip_low, 1 + clip_high) A in such a turn, else -min(r A, clip(r, ...) A). So no decision of the turn outside
    the bounds moves further, on either side and for either sign of A. In particular, an unlikely decision of a bad turn that became far
    likelier does not blow up the step.

    - ``guard`` = inf, or r <= ``guard`` throughout: ClippedRatio.
    - ``guard`` = 0: the clipped term everywhere.

    ``guard/frac``: decisions of guarded turns.

    Confidence: verified.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS"})

    clip_low: float = 0.1
    clip_high: float = 0.1
    guard: float = 10.0

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)
        if self.guard < 0:
            raise ValueError(f"GuardedTurns.guard is {self.guard}; it bounds a ratio, so it is 0 or above (inf is off)")

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).where(batch.mask_NS, 0)
        ratio_NS, advantage_NS = log_ratio_NS.exp(), batch.column("advantage_NS", self)
        surrogate_NS, clipped = clip_pessimistically(ratio_NS, advantage_NS, self.clip_low, self.clip_high)
        over_NS = (ratio_NS.detach() > self.guard) & batch.mask_NS
        guarded_NS = ops.pooled(over_NS.float(), batch.mask_NS, "turn", batch.turns_NS, "sum") > 0
        bounded_NS = ratio_NS.clamp(1 - self.clip_low, 1 + self.clip_high) * advantage_NS
        loss_NS = -bounded_NS.where(guarded_NS, surrogate_NS)
        return Terms(loss_NS, clipped | {"kl/old": k3_of(log_ratio_NS), "guard/frac": guarded_NS.float()})
