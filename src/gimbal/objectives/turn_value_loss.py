"""The regression of a critic that knows turns and not tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.objectives.value_loss import ValueLoss
from gimbal.ops.levels import first_of_turn
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class TurnValueLoss(ValueLoss):
    """ValueLoss once a turn, at the turn's first decision, where nothing of it is written yet (VL-DAC, arXiv:2508.04280).

    - turns of one decision: ValueLoss.

    Its mean counts turns and not decisions, so long turns weigh no more than short ones. Use with TurnGAE.

    Confidence: verified.
    """

    def counted(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        return first_of_turn(batch.turns_NS, batch.mask_NS)

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        terms = super().__call__(logprob_NS, batch)
        return replace(terms, loss_NS=terms.loss_NS * self.counted(batch))
