"""A thought is rewarded for its effect on the score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractRewardShaping
from gimbal.advantages.components import added_at_end
from gimbal.ops.opponents import compared, end_of
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class RankedRightly(AbstractRewardShaping):
    """Rewards a judge's reasoning if the head's score with it is on the correct side of the others' (DeScore, arXiv:2605.05922).

    Adds ``weight`` times the share of the rows compared with it that a row's score (the critic's value at its end, before the update)
    is rightly above or below; ``pair`` and ``preference`` say which rows are compared, as in RankingLoss. Equal scores are not right.

    - ``weight`` = 0, or no row to compare with: the rewards as they are.
    - a head that ignores the thought: the same for all thoughts about one answer, so 0 once the group is centred.

    Confidence: partial; published: the reward combines form and the head's correctness; ours: the share, and ``weight``.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"value_NS", "reward_NS", "group_N"})
    names_rewards: ClassVar[tuple[str, ...]] = (
        "pair",
        "preference",
    )

    pair: str = ""
    preference: str = ""
    weight: float = 1.0

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return added_at_end(batch, self.weight * self._right_N(batch), self)

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        compared_N = (beats := compared(batch, self.pair, self.preference, self)).any(0) | beats.any(1)
        right_N = self._right_N(batch)[compared_N]
        return {"rank/right": float(right_N.mean()) if len(right_N) else 0.0}

    def _right_N(self, batch: TrainBatch) -> Float[Tensor, " N"]:
        beats, score_N = (
            compared(batch, self.pair, self.preference, self),
            end_of(batch.column("value_NS", self), batch),
        )
        above_NN = score_N[:, None] > score_N
        right_NN = (beats & above_NN) | (beats & above_NN).T
        return right_NN.double().sum(-1) / (beats | beats.T).double().sum(-1).clamp(min=1)
