"""What a learner asks of the processes it is one of: its share of the work, and sums over all of them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.dataflow.packing import micro_batches
from gimbal.ops.weights import weights_of
from gimbal.policies.base import AbstractPolicy
from gimbal.records import TrainBatch


def several() -> bool:
    """Whether torchrun, or a launcher that sets the same variables, started more than this process."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def rank() -> int:
    """This process's rank; 0 if it is the only one."""
    return int(os.environ["RANK"]) if several() else 0


class AbstractRanks(ABC):
    """Every rank has the whole batch and computes all its statistics; only forward and backward passes are distributed.

    All ranks make the same calls in the same order; each call may wait for all others.
    """

    @abstractmethod
    def shard(self, policy: AbstractPolicy) -> AbstractPolicy:
        """The policy with this rank's part of its weights, which are rank 0's."""

    @abstractmethod
    def micro_batches(
        self, batch: TrainBatch, tokens: int, *, policy: AbstractPolicy, whole_groups: bool = False
    ) -> list[TrainBatch]:
        """Those of this rank; on every rank as many. One that is there only to keep step weighs nothing and has no ``row_N``."""

    @abstractmethod
    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The sum of each over the ranks, all of which know the same names."""

    @abstractmethod
    def joined(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        """Columns of the whole batch, of which each rank filled the rows of its share and left the others 0."""

    @abstractmethod
    def nothing(self, logprob_NS: Float[Tensor, "N S"]) -> Float[Tensor, ""]:
        """A loss of 0, to which others are added."""

    @abstractmethod
    def clip(self, module: nn.Module, max_norm: float) -> float:
        """Scale the gradient of the whole minibatch down to this norm; returns the norm it had."""


class SingleProcess(AbstractRanks):
    """One process, which does all the work."""

    def shard(self, policy: AbstractPolicy) -> AbstractPolicy:
        return policy

    def micro_batches(
        self, batch: TrainBatch, tokens: int, *, policy: AbstractPolicy, whole_groups: bool = False
    ) -> list[TrainBatch]:
        return micro_batches(batch, tokens, whole_groups=whole_groups, extent=policy.extent)

    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        return dict(numbers)

    def joined(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        return columns

    def nothing(self, logprob_NS: Float[Tensor, "N S"]) -> Float[Tensor, ""]:
        return logprob_NS.new_zeros(())

    def clip(self, module: nn.Module, max_norm: float) -> float:
        weights = [weight for weight in weights_of(module) if weight.grad is not None]
        if not weights:
            return 0.0
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        found = float(norm)  # once: on an accelerator each reading waits
        # Else it would be multiplied by 1, which takes as long as the step of a small network.
        if not found + 1e-6 < max_norm:
            torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
        return found


def in_micro_batches(
    ranks: AbstractRanks,
    policy: AbstractPolicy,
    batch: TrainBatch,
    tokens: int,
    columns_of: Callable[[TrainBatch], Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """Columns [N], [N, S] or [N, S, ...] of each micro-batch, without gradient, back in the order of the rows."""
    found: dict[str, Tensor] = {}
    device = batch.mask_NS.device
    numbered = replace(batch, row_N=torch.arange(batch.shape[0], device=device))
    with torch.no_grad():
        for micro in ranks.micro_batches(numbered, tokens, policy=policy):
            for name, value in columns_of(micro).items():
                shape = batch.shape[: value.ndim] + tuple(value.shape[2:])
                whole = found.setdefault(name, torch.zeros(shape, device=device))
                if (row_N := micro.row_N) is not None:
                    place = row_N if value.ndim == 1 else (row_N, slice(micro.shape[1]))
                    whole[place] = value.float()
    return ranks.joined(found)
