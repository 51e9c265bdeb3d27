"""Segments of an episode in models of other kinds than the policy: denoising steps behind tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool
from torch import Tensor

from gimbal.engines.base import AbstractEngineSpec
from gimbal.objectives.base import AbstractObjective
from gimbal.policies.base import AbstractPolicySpec
from gimbal.records import AbstractSampling, TrainBatch


@dataclass(frozen=True, kw_only=True)
class OtherKind:
    """A model of another kind than the policy, how its rows are drawn, and what they lose (UniGRPO, arXiv:2603.23500).

    loss = J_policy + ``weight`` J_kind. Each J is the objective and its regularisers over the rows of its own kind, aggregated with a
    denominator of its own; rewards and advantages are those of the whole episode.

    - no rows of the policy: the run of this kind alone, bit for bit.
    - ``weight`` 0: the model stays as it began, and the policy learns from what it makes.

    ``sampling`` is that of its rows, at temperature 0 where the episode's is (a greedy evaluation). Regularisers pull towards the
    model as it began. Masks and the correction of the run are for the policy's rows.
    """

    policy: AbstractPolicySpec
    engine: AbstractEngineSpec
    sampling: AbstractSampling
    objective: AbstractObjective
    regularisers: tuple[AbstractObjective, ...] = ()
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.weight < 1e6:
            raise ValueError(
                f"the weight of another kind is {self.weight}; it must be a number from 0, below a million"
            )

    @property
    def summed(self) -> tuple[AbstractObjective, ...]:
        return self.objective, *self.regularisers

    @property
    def needs(self) -> frozenset[str]:
        """The columns that its losses read."""
        return frozenset().union(*(part.needs for part in self.summed))


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The rows of one kind, and the parts of the loss that are about them: those numbered from ``first``."""

    kind: str  # the name of the model; "" is the policy, and all that share its kind
    parts: tuple[AbstractObjective, ...]
    first: int = 0
    weight: float = 1.0
    others: Mapping[str, str]  # the model of each role that another kind plays

    def own_N1(self, batch: TrainBatch) -> Bool[Tensor, "N 1"] | None:
        """Which rows are its own; None: all."""
        if not self.others or batch.role_N is None:
            return None
        mine_R = torch.tensor([self.others.get(role, "") == self.kind for role in batch.roles])
        return mine_R.to(batch.role_N.device)[batch.role_N][:, None]

    def of(self, batch: TrainBatch) -> TrainBatch:
        """The batch in which only its own decisions count."""
        own_N1 = self.own_N1(batch)
        return batch if own_N1 is None else replace(batch, mask_NS=batch.mask_NS & own_N1)

    def named(self, metric: str) -> str:
        return f"{metric}/{self.kind}" if self.kind else metric
