"""Decisions on whose value the members of a critic agree do not train."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor

from gimbal.composition import DISAGREES, Advice, Composition, Verdict
from gimbal.objectives.base import AbstractMask, check_share
from gimbal.ops.lots import first_by, lots
from gimbal.records import TrainBatch


def extreme(batch: TrainBatch, reader: object, share: float, sign: int) -> Bool[Tensor, "N S"]:
    """floor(share n) of the n decisions, by rank of sign times the members' deviation; lots decide between equal ones."""
    deviation_NS = batch.column("value_NSM", reader).double().std(-1, correction=0)
    lot_NS = lots(batch.column("behavior_NS", reader), batch.mask_NS, "disagreement")
    return first_by(batch.mask_NS, math.floor(share * int(batch.mask_NS.sum())), sign * deviation_NS, lot_NS)


@dataclass(frozen=True, kw_only=True)
class DisagreementMask(AbstractMask):
    """Excludes decisions where the critics agree: they teach little and invite over-fitting (ASYPPO, arXiv:2510.01656).

    Dropped are the floor(share n) of the minibatch's n decisions with the smallest deviation of V_m over the members m, as they were
    before the update. It ranks rather than thresholds, so equal members also drop exactly that many, at random.

    - ``share`` = 0: all are kept; ``share`` = 1: none.

    Dropped decisions stay in the loss's denominator and in the regularisers. The control for it is a mask of equal size at random:
    CovarianceMask with the same share and every bound infinite.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"value_NSM", "behavior_NS"})

    share: float = 0.2

    def __post_init__(self) -> None:
        check_share(self, self.share)

    def __call__(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        return batch.mask_NS & ~extreme(batch, self, self.share, 1)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from one_critic(whole)


def one_critic(whole: Composition) -> Iterator[Verdict]:
    if not whole.doing(DISAGREES):
        yield Advice("one critic cannot disagree with itself: set critic=Ensemble(critics=(..., ...))")
