"""The regression of a critic that knows turns and not tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.composition import FITS_CRITIC, FITS_TURNS, READS_TURNS, Advice, Composition, Verdict
from gimbal.objectives.base import AbstractObjective
from gimbal.objectives.values.value_loss import ValueLoss
from gimbal.ops.levels import first_of_turn
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class TurnValueLoss(AbstractObjective):
    """ValueLoss once per turn, at the turn's first decision, before any of the turn is written (VL-DAC, arXiv:2508.04280).

    - turns of one decision: ValueLoss.

    Its mean is over turns, not decisions, so long turns weigh no more than short ones. Use with TurnGAE.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = ValueLoss.needs

    coef: float = 0.5
    clip: float = math.inf

    def __post_init__(self) -> None:
        self._loss()

    def counted(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        return first_of_turn(batch.turns_NS, batch.mask_NS)

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        terms = self._loss()(logprob_NS, batch)
        return replace(terms, loss_NS=terms.loss_NS * self.counted(batch))

    def _loss(self) -> ValueLoss:
        return ValueLoss(coef=self.coef, clip=self.clip)

    def effects(self) -> frozenset[str]:
        return frozenset({FITS_CRITIC, FITS_TURNS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(READS_TURNS):
            yield Advice(
                "TurnGAE reads values at the first decisions of turns and TurnValueLoss fits them only there: use both or neither"
            )
