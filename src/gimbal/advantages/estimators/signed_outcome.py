"""Right or wrong, without a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.composition import Advice, Composition, Verdict
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class SignedOutcome(AbstractAdvantage):
    """A positive constant for correct rollouts and a negative one for wrong rollouts (W-REINFORCE, arXiv:2506.01347).

    A = positive if R > threshold, else -negative; R is the rollout's return, or the reward named ``right``. No baseline, no scale.

    - ``positive`` = 0: negative sample reinforcement (NSR). Probability taken from a wrong decision goes to the others in
      proportion to theirs.
    - ``negative`` = 0: positive sample reinforcement (PSR).
    - ``positive`` = ``negative`` = 1: REINFORCE with a reward of 1 or -1, and no baseline.

    Rollouts are not compared within groups, so all-wrong and all-right groups teach too; filters.ZeroVariance would discard them. A
    rollout of weight 0 stays in the loss's denominator.

    Published: ``positive`` 0.1, ``negative`` 1, for rewards of 0 and 1; ours: the threshold.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS"})
    names_rewards: ClassVar[tuple[str, ...]] = ("right",)

    positive: float = 0.1
    negative: float = 1.0
    right: str = ""
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not (self.positive >= 0 and self.negative >= 0):
            raise ValueError(
                f"SignedOutcome weighs right rollouts {self.positive} and wrong ones {self.negative}; both weights are 0 or above, "
                "the sign is its own"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        reward_NS = batch.column("reward_NS", self)
        outcome_N = batch.column(f"score/{self.right}", self) if self.right else reward_NS.sum(-1)
        weight_N = torch.full_like(reward_NS[:, 0], -self.negative).masked_fill(
            outcome_N > self.threshold, self.positive
        )
        return weight_N[:, None] * batch.mask_NS

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(Whitened):
            yield Advice("Whitened brings back the baseline that SignedOutcome leaves out")
