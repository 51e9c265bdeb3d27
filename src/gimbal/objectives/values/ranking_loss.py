"""A head that scores, from preferences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from gimbal.objectives.base import AbstractObjective
from gimbal.ops.opponents import compared, end_of, mean_over
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class RankingLoss(AbstractObjective):
    """Fits the critic's value at the end of a text as a preference score (DeScore, arXiv:2605.05922, after Bradley and Terry).

    s is the value at a row's last decision. Rows with the same number in the fact ``pair`` ("" is the group) are compared, n above m
    where the fact ``preference`` ("" is the return) of n is higher. With `below` the mean old score of the rows that a row should beat,
    and `above` of those that should beat it: loss = -coef (log sigmoid(s - below) + log sigmoid(above - s)), the same on every
    decision, so that SequenceMean makes it a mean over rows. No gradient flows through the tokens; the critic decides whether any
    reaches the policy.

    - a pair of one row each: the two rows' gradients add up to that of -log sigmoid(s_w - s_l) while the score has not moved.
    - s far above: 0, and its gradient too. Equal scores: log 2 and a gradient of 1/2.
    - equal preferences, or no row to compare with: 0.
    - ``coef`` = 0, or no critic at all: only a judge that states its score in words is left.

    Published: the loss, and that it is joined to GRPO on the thoughts.

    Confidence: partial; ours: ``coef``, means over several rows, and the others' scores from before the update.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"new_value_NS", "value_NS", "reward_NS", "group_N"})
    names_rewards: ClassVar[tuple[str, ...]] = (
        "pair",
        "preference",
    )

    pair: str = ""
    preference: str = ""
    coef: float = 1.0

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        beats, score_N = (
            compared(batch, self.pair, self.preference, self),
            end_of(batch.column("value_NS", self), batch),
        )
        return {
            "rank/below": mean_over(score_N, beats),
            "rank/above": mean_over(score_N, beats.T),
            "rank/beats": beats.any(1).float(),
            "rank/beaten": beats.any(0).float(),
        }

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "rank/below")
        score_N = end_of(batch.column("new_value_NS", self), batch)
        beats_N, beaten_N = batch.column("rank/beats", self), batch.column("rank/beaten", self)
        lead_N = score_N - batch.column("rank/below", self)
        lag_N = batch.column("rank/above", self) - score_N
        loss_N = -beats_N * logsigmoid(lead_N) - beaten_N * logsigmoid(lag_N)
        right_N = (beats_N * (lead_N > 0) + beaten_N * (lag_N > 0)) / (beats_N + beaten_N).clamp(min=1)
        metrics = {"rank/accuracy": right_N[:, None] * batch.mask_NS}
        return Terms(self.coef * loss_N[:, None] * batch.mask_NS, metrics)
