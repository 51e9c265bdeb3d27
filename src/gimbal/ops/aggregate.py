"""From a loss of each decision to one number: loss = sum(weight_NS * loss_NS), with weights of the *global* minibatch.

The weights are computed once, before the minibatch is split into micro-batches or over ranks, so every split gives the same
gradient. An aggregation is nothing but these weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal.composition import AbstractPart


class AbstractAggregation(AbstractPart, ABC):
    """(mask_NS, part_NS) -> weight_NS, zero where the mask is False. All-masked rows and empty batches weigh nothing.

    ``part_NS`` holds ``records.Part`` codes, for aggregations that weigh parts of a rollout apart; None is one part.
    """

    @abstractmethod
    def __call__(
        self, mask_NS: Bool[Tensor, "N S"], part_NS: Int[Tensor, "N S"] | None = None
    ) -> Float[Tensor, "N S"]: ...


@dataclass(frozen=True)
class TokenMean(AbstractAggregation):
    """tok(x) = sum(m x) / sum(m): every decision of the minibatch counts the same (DAPO, arXiv:2503.14476)."""

    def __call__(self, mask_NS: Bool[Tensor, "N S"], part_NS: Int[Tensor, "N S"] | None = None) -> Float[Tensor, "N S"]:
        return mask_NS.float() / mask_NS.sum().clamp(min=1)


@dataclass(frozen=True)
class SequenceMean(AbstractAggregation):
    """seq(x) = 1/N sum_i 1/L_i sum_t m x: every rollout counts the same, its decisions share its weight (GRPO, arXiv:2402.03300).

    N counts rows with at least one decision. With equal lengths it equals TokenMean.
    """

    def __call__(self, mask_NS: Bool[Tensor, "N S"], part_NS: Int[Tensor, "N S"] | None = None) -> Float[Tensor, "N S"]:
        length_N = mask_NS.sum(-1)
        return mask_NS / length_N.clamp(min=1)[:, None] / (length_N > 0).sum().clamp(min=1)


@dataclass(frozen=True)
class SequenceSum(AbstractAggregation):
    """seqsum(x) = 1/N sum_i sum_t m x: the unbiased policy gradient of whole sequences (RLOO, arXiv:2402.14740)."""

    def __call__(self, mask_NS: Bool[Tensor, "N S"], part_NS: Int[Tensor, "N S"] | None = None) -> Float[Tensor, "N S"]:
        return mask_NS.float() / mask_NS.any(-1).sum().clamp(min=1)


@dataclass(frozen=True)
class ConstantMean(AbstractAggregation):
    """const(x) = 1/N sum_i 1/C sum_t m x with a constant C = ``length``, usually the length budget (Dr. GRPO, arXiv:2503.20783).

    ``length`` 1 is SequenceSum; all rows of length C give SequenceMean.
    """

    length: float = 64.0

    def __post_init__(self) -> None:
        if self.length <= 0:
            raise ValueError(f"ConstantMean.length is {self.length}; it is a number of decisions above 0")

    def __call__(self, mask_NS: Bool[Tensor, "N S"], part_NS: Int[Tensor, "N S"] | None = None) -> Float[Tensor, "N S"]:
        return mask_NS.to(torch.float32) / (mask_NS.any(-1).sum().clamp(min=1) * self.length)
