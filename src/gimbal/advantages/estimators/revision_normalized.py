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

# Of a row by itself, as its workflow writes them into its scores: what came of it, what had come before it, and which rows it is
# compared with.
OUTCOME, BEFORE, REVISION = "outcome", "before", "revision"


@dataclass(frozen=True, kw_only=True)
class RevisionNormalized(AbstractAdvantage):
    """Every row of an episode has an outcome of its own, and is compared by it and by what it gained (Skill-R1, arXiv:2605.09359;
    rewards of roles and of turns in UnityMAS-O, arXiv:2605.26646).

    A = within norm(r) + across norm(r - b),  norm(x) = (x - mean x) / (std x + eps) over the rows of the group with the same g.

    r is the row's fact "score/outcome", b what had been reached before it ("score/before", 0 at first), and g what it is compared
    with ("score/revision"): the same revision of other attempts, or other rows of its role. Workflows write them: SkillEvolution,
    PlanAndRepair, or your own. What an attempt earns without any revision would be the same for all of a group, so that it cancels in
    the mean.

    - ``across`` = 0: GroupNormalized of every revision by itself (UnityMAS-O's rewards of roles).
    - ``within`` = 0: only what was gained counts (its rewards of turns, p_k - p_(k-1), whose sum over the turns is the last p).
    - one revision: ``within`` + ``across`` times GroupNormalized.
    - all outcomes of a revision equal: only what was gained since the one before counts.
    - a group of one: A = 0.

    The second term pays for a bad revision before a good one: watch the first outcome. ``outcome/G`` is the mean outcome of revision G,
    and ``gained/G`` what it adds to the one before.

    Confidence: partial; both comparisons are published, and of UnityMAS-O the differences; ours: the normalisers and ``across`` 0.5.
    """

    # It compares the rows of episodes knowingly, which is what the update asks of whoever does without ``per_episode``.
    needs: ClassVar[frozenset[str]] = frozenset({"group_N", "episode_N"})

    within: float = 1.0
    across: float = 0.5
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not (self.within >= 0 and self.across >= 0 and self.within + self.across > 0):
            raise ValueError(
                f"RevisionNormalized has within={self.within} and across={self.across}; they weigh outcomes and what was gained, 0 or "
                "above, and not both 0"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        outcome_N, before_N, revision_N = self._columns(batch)
        label_N = torch.unique(torch.stack([batch.column("group_N", self), revision_N]), dim=1, return_inverse=True)[1]
        within_N, across_N = (
            ops.group_normalised(x_N, label_N, ddof=self.ddof, eps=self.eps)
            for x_N in (outcome_N, outcome_N - before_N)
        )
        return (self.within * within_N + self.across * across_N)[:, None] * batch.mask_NS

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        outcome_N, before_N, revision_N = self._columns(batch)
        of = {revision: revision_N == revision for revision in revision_N.unique().tolist()}
        reached = {f"outcome/{revision}": float(outcome_N[own_N].mean()) for revision, own_N in of.items()}
        return reached | {f"gained/{g}": float((outcome_N - before_N)[own_N].mean()) for g, own_N in of.items()}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(REVISES):
            yield Refusal(
                "RevisionNormalized compares revisions by outcomes of their own, which this workflow does not give them: "
                "workflow='SkillEvolution()', or advantage='GroupNormalized()'"
            )

    def _columns(self, batch: TrainBatch) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Int[Tensor, " N"]]:
        batch.column("episode_N", self)  # a batch whose rows are whole episodes has no outcomes of rows
        outcome_N, before_N, revision_N = (batch.column(f"score/{name}", self) for name in (OUTCOME, BEFORE, REVISION))
        return outcome_N.float(), before_N.float(), revision_N.long()
