"""From a loss of each decision to one number: loss = sum(weight_NS * loss_NS), with weights of the *global* minibatch.

The weights are computed once, before the minibatch is split into micro-batches or over ranks, so every split gives the same
gradient. An aggregation is only these weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal.composition import AbstractPart


class AbstractAggregation(AbstractPart, ABC):
    """(mask_NS, part_NS, episode_N) -> weight_NS, zero where the mask is False. All-masked rows and empty batches have weight 0.

    ``part_NS`` holds ``records.Part`` codes, for aggregations that weight parts of a rollout separately; None is one part. Rows with
    the same label in ``episode_N`` are one sequence, however it was cut; None is one row per sequence.
    """

    @abstractmethod
    def __call__(
        self,
        mask_NS: Bool[Tensor, "N S"],
        part_NS: Int[Tensor, "N S"] | None = None,
        episode_N: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N S"]: ...


def _sequences(
    mask_NS: Bool[Tensor, "N S"], episode_N: Int[Tensor, " N"] | None
) -> tuple[Int[Tensor, " N"], Int[Tensor, ""]]:
    """Counted decisions of each row's sequence, and the number of sequences that have any."""
    length_N = mask_NS.sum(-1)
    if episode_N is None:
        return length_N, (length_N > 0).sum()
    label_N = episode_N.unique(return_inverse=True)[1]
    length_E = torch.zeros_like(length_N).index_add_(0, label_N, length_N)
    return length_E[label_N], (length_E > 0).sum()


@dataclass(frozen=True)
class TokenMean(AbstractAggregation):
    """tok(x) = sum(m x) / sum(m): every decision of the minibatch has the same weight (DAPO, arXiv:2503.14476).

    This holds however an episode is cut into rows: shared decisions count once, since all rows but the one that sampled them mask them.
    """

    def __call__(
        self,
        mask_NS: Bool[Tensor, "N S"],
        part_NS: Int[Tensor, "N S"] | None = None,
        episode_N: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N S"]:
        return mask_NS.float() / mask_NS.sum().clamp(min=1)


@dataclass(frozen=True)
class SequenceMean(AbstractAggregation):
    """seq(x) = 1/N sum_i 1/L_i sum_t m x: every rollout has the same weight, shared by its decisions (GRPO, arXiv:2402.03300).

    N counts episodes with at least one decision, and L_i the decisions of all rows of an episode, so one cut into many rows
    counts once. With equal lengths it equals TokenMean.
    """

    def __call__(
        self,
        mask_NS: Bool[Tensor, "N S"],
        part_NS: Int[Tensor, "N S"] | None = None,
        episode_N: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N S"]:
        length_N, count = _sequences(mask_NS, episode_N)
        return mask_NS / length_N.clamp(min=1)[:, None] / count.clamp(min=1)


@dataclass(frozen=True)
class SequenceSum(AbstractAggregation):
    """seqsum(x) = 1/N sum_i sum_t m x: the unbiased policy gradient over whole sequences (RLOO, arXiv:2402.14740).

    N counts episodes, regardless of their rows.
    """

    def __call__(
        self,
        mask_NS: Bool[Tensor, "N S"],
        part_NS: Int[Tensor, "N S"] | None = None,
        episode_N: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N S"]:
        return mask_NS.float() / _sequences(mask_NS, episode_N)[1].clamp(min=1)


@dataclass(frozen=True)
class ConstantMean(AbstractAggregation):
    """const(x) = 1/N sum_i 1/C sum_t m x with a constant C = ``length``, usually the length budget (Dr. GRPO, arXiv:2503.20783).

    N counts episodes, regardless of their rows. ``length`` 1 is SequenceSum; all episodes of length C give SequenceMean.
    """

    length: float = 64.0

    def __post_init__(self) -> None:
        if self.length <= 0:
            raise ValueError(f"ConstantMean.length is {self.length}; it must be a number of decisions above 0")

    def __call__(
        self,
        mask_NS: Bool[Tensor, "N S"],
        part_NS: Int[Tensor, "N S"] | None = None,
        episode_N: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N S"]:
        return mask_NS.to(torch.float32) / (_sequences(mask_NS, episode_N)[1].clamp(min=1) * self.length)
