"""Each revision of an attempt is compared with the same revision of others, by its outcome and by what it gained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.composition import REVISES, Composition, Refusal, Verdict
from gimbal.records import TrainBatch

OUTCOME, REVISION = "outcome", "revision"  # of a row by itself, as its workflow writes them into its scores


@dataclass(frozen=True, kw_only=True)
class RevisionNormalized(AbstractAdvantage):
    """Every row of an episode is a revision with an outcome of its own, compared within and across revisions (Skill-R1,
    arXiv:2605.09359).

    A_g = norm(r_g) + across norm(r_g - r_(g-1)),  norm(x) = (x - mean x) / (std x + eps) over the g-th revisions of the group's
    episodes, r_(-1) = 0.

    r_g is the row's fact "score/outcome" and g its fact "score/revision", from 0. What an attempt earns without any
    revision would be the same for all of a group, so that it cancels in the mean.

    - ``across`` = 0: GroupNormalized of every revision by itself.
    - one revision: 1 + ``across`` times GroupNormalized.
    - all outcomes of a revision equal: only what was gained since the one before counts.
    - a group of one: A = 0.

    The second term pays for a bad revision before a good one: watch the first outcome. ``outcome/G`` is the mean outcome of revision G.

    Confidence: partial; both comparisons are published; ours: their normalisers and ``across`` 0.5.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"group_N", "episode_N"})

    across: float = 0.5
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not self.across >= 0:
            raise ValueError(f"RevisionNormalized.across is {self.across}; it weighs what was gained, 0 or above")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        outcome_N, place_N = self._outcomes(batch)
        episode_N = batch.column("episode_N", self).unique(return_inverse=True)[1]
        outcome_EK = outcome_N.new_zeros(
            len(episode_N), int(place_N.max()) + 2
        )  # the first column is before all revisions
        outcome_EK[episode_N, place_N + 1] = outcome_N
        before_N = outcome_EK[episode_N, place_N]
        label_N = torch.unique(torch.stack([batch.column("group_N", self), place_N]), dim=1, return_inverse=True)[1]
        within_N, across_N = (
            ops.group_normalised(x_N, label_N, ddof=self.ddof, eps=self.eps)
            for x_N in (outcome_N, outcome_N - before_N)
        )
        return (within_N + self.across * across_N)[:, None] * batch.mask_NS

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        outcome_N, place_N = self._outcomes(batch)
        return {f"outcome/{place}": float(outcome_N[place_N == place].mean()) for place in place_N.unique().tolist()}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(REVISES):
            yield Refusal(
                "RevisionNormalized compares revisions by outcomes of their own, which this workflow does not give them: "
                "workflow='SkillEvolution()', or advantage='GroupNormalized()'"
            )

    def _outcomes(self, batch: TrainBatch) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
        return batch.column(f"score/{OUTCOME}", self).float(), batch.column(f"score/{REVISION}", self).long()
