"""Likelihood of right answers against that of wrong ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal import ops
from gimbal.composition import Advice, Composition, Verdict
from gimbal.objectives.base import AbstractObjective
from gimbal.objectives.regularisers.kl_hinge import KLHinge
from gimbal.ops import SequenceMean
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class ContrastiveLikelihood(AbstractObjective):
    """Prefers short correct answers to long correct ones, without pushing any correct answer down (DRPO, arXiv:2510.04474).

    For each group with right and wrong rollouts, s = mean_t logprob:
    J = sum_right w_i s_i / sum_right w_i - tau log(mean_wrong exp(s_j / tau)),  w_i = exp((1 - length_i / budget) / strength).
    The loss is the mean of -J over all groups of the minibatch, as loss_t = -c_i logprob_t with c_i from a survey (a right one's
    share of w, a wrong one's negative softmax of s / tau), times rows / groups; so use it with SequenceMean; its value is that of the
    linear part. Right is a return above ``threshold``, or the reward named ``right``; ``preference`` names a reward to use
    instead of 1 - length / budget. It reads no advantages.

    - ``strength`` = inf: uniform weights over right answers (DisCO, arXiv:2505.12366).
    - ``tau`` = inf: the mean of wrong answers' s.
    - a group all right or all wrong: no gradient from it.
    - right answers of one length: ``strength`` does not matter.

    Published: ``strength`` 0.1, ``tau`` 10, ``budget`` 8192 (the run's longest answer), with KLHinge.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N", "current_NS"})
    names_rewards: ClassVar[tuple[str, ...]] = (
        "right",
        "preference",
    )

    strength: float = 0.1
    tau: float = 10.0
    budget: int = 64
    right: str = ""
    threshold: float = 0.5
    preference: str = ""

    def __post_init__(self) -> None:
        if min(self.strength, self.tau, self.budget) <= 0:
            raise ValueError(
                f"ContrastiveLikelihood divides by strength {self.strength}, tau {self.tau} and budget {self.budget}; all are above 0"
            )

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        current_NS, group_N = batch.column("current_NS", self), batch.column("group_N", self)
        score_N = ops.sequence_mean(current_NS, batch.mask_NS).double()
        there_N = batch.mask_NS.any(-1)
        outcome_N = batch.column(f"score/{self.right}", self) if self.right else batch.return_N
        right_N = outcome_N > self.threshold
        length_N = batch.mask_NS.sum(-1).double()
        liked_N = batch.column(f"score/{self.preference}", self) if self.preference else 1 - length_N / self.budget
        up_N = _softmax(liked_N.double() / self.strength, group_N, there_N & right_N)
        down_N = _softmax(score_N / self.tau, group_N, there_N & ~right_N)
        both_N = (ops.group_mean(up_N, group_N) > 0) & (ops.group_mean(down_N, group_N) > 0)
        groups = len(torch.unique(group_N[there_N]))
        coefficient_N = (up_N - down_N).where(both_N, 0) * (there_N.sum() / max(groups, 1))
        return {"contrast": coefficient_N.float()}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "contrast")
        coefficient_N = batch.column("contrast", self)
        precise_NS = logprob_NS.to(torch.promote_types(logprob_NS.dtype, torch.float32)).where(batch.mask_NS, 0)
        taught_NS = (coefficient_N != 0).float()[:, None].expand_as(precise_NS)
        return Terms(-coefficient_N[:, None] * precise_NS, {"contrast/share": taught_NS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(KLHinge):
            yield Advice("ContrastiveLikelihood without KLHinge: nothing bounds the update")
        if not whole.has(SequenceMean):
            yield Advice(
                "ContrastiveLikelihood weights rollouts itself and assumes SequenceMean; another aggregation weights them again"
            )


def _softmax(x_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], member_N: Bool[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Softmax of x over the members of each group; 0 for the others."""
    share_N = torch.zeros_like(x_N)
    for label in torch.unique(group_N[member_N]):
        chosen_N = member_N & (group_N == label)
        share_N[chosen_N] = x_N[chosen_N].softmax(0)
    return share_N
