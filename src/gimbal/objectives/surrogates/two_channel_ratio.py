"""Two advantages of one rollout, each in its own clipped surrogate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically, k3_of
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class TwoChannelRatio(AbstractObjective):
    """Trains economy among correct answers only, in a second surrogate (HDPO, arXiv:2604.08545).

    loss = clip(r, A) + economy_weight clip(r, B), with ClippedRatio's clip. A is the batch's advantage.
    B = (e - mean e) / (std e + eps) over those rollouts of the group whose ``outcome`` reaches ``threshold`` and whose ``economy`` e
    is above 0; 0 for all others, and where fewer than two qualify. Both are names of rewards; give them weight 0 to keep them out of A.

    - ``economy_weight`` = 0, or all right answers of a group equally economic: ClippedRatio.
    - no right answer: ClippedRatio. The second channel is then inactive.
    - at logprob = proximal the gradient is ClippedRatio's with A + economy_weight B; away from it, where A and B differ in sign, it
      is not.

    Published: ``economy_weight`` .15 (.1 and .2 were worse), economy 1 / (1 + calls), A of .9 answer + .1 form.

    Confidence: verified.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS", "group_N"})
    names_rewards: ClassVar[tuple[str, ...]] = (
        "outcome",
        "economy",
    )

    outcome: str = "right"
    economy: str = "short"
    threshold: float = 1.0
    economy_weight: float = 0.15
    clip_low: float = 0.2
    clip_high: float = 0.2
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)
        if self.economy_weight < 0:
            raise ValueError(
                f"TwoChannelRatio.economy_weight is {self.economy_weight}; below 0 it would pay for waste: 0 (off) or above"
            )

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        outcome_N = batch.column(f"score/{self.outcome}", self).double()
        economy_N = batch.column(f"score/{self.economy}", self).double()
        qualified_N = (outcome_N >= self.threshold) & (economy_N > 0) & batch.mask_NS.any(-1)
        group_N = batch.column("group_N", self)
        advantage_N = ops.group_normalised(economy_N, group_N, ddof=self.ddof, eps=self.eps, counted_N=qualified_N)
        return {"economy_N": advantage_N.float()}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "economy_N")
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).where(batch.mask_NS, 0)
        economy_NS = batch.column("economy_N", self)[:, None] * batch.mask_NS
        low, high = self.clip_low, self.clip_high
        first_NS, clipped = clip_pessimistically(log_ratio_NS.exp(), batch.column("advantage_NS", self), low, high)
        second_NS, _ = clip_pessimistically(log_ratio_NS.exp(), economy_NS, low, high)
        metrics = {**clipped, "kl/old": k3_of(log_ratio_NS), "economy/qualified": (economy_NS != 0).float()}
        return Terms(-first_NS - self.economy_weight * second_NS, metrics)
