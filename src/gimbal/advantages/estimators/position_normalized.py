"""Every position of a group has its own mean and scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class PositionNormalized(AbstractAdvantage):
    """Lowers the advantage of each decision after the first correct answer; before it, the advantage is full (DECS, arXiv:2509.25827).

    A_is = (r_is - mean_g r_s) / (std_g r_s + eps), mean and std over the group's rollouts at the same position s. With R_i the
    rollout's reward and L_i its decisions, r_is = (redundant - slope L_i / max_length) R_i where a decision is redundant, else
    full R_i. Positions past a rollout's end, or under its mask, count with full R_i in the statistics of the others.
    A decision is redundant in the turns from ``necessary`` to before ``steps``, two facts that count steps ("score/NAME" of
    rewards.WorkingSteps, with the turns of filters.StepTurns); the answer's turn comes after them. Without named facts no decision is
    redundant.

    - nothing redundant, or ``redundant`` = ``full`` with ``slope`` 0: GroupNormalized of full R, the same at every position.
    - one redundant position: the advantages at all other positions stay as they are.
    - all rewards 0, or a group of one: A = 0. Equal rewards give 0 wherever the group is equally redundant.

    Published: rewards of 0 and 1, ``full`` 1.1, ``redundant`` 1, ``slope`` their difference; the released code has ``redundant`` 1.1. A
    small model judges which step first contains the answer. ``max_length`` was 16384; ours fits the tiny runs.

    Confidence: verified; ours: masked positions in the middle count like those past the end.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})

    necessary: str = ""
    steps: str = ""
    full: float = 1.1
    redundant: float = 1.0
    slope: float = 0.1
    max_length: int = 64
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if bool(self.necessary) != bool(self.steps):
            raise ValueError(
                "PositionNormalized identifies redundant turns by two facts: name both necessary and steps, or neither"
            )
        if self.max_length < 1:
            raise ValueError(f"PositionNormalized.max_length is {self.max_length}; it counts decisions, 1 or more")
        if self.redundant > self.full or self.slope < 0:
            raise ValueError(
                f"PositionNormalized pays {self.full}, and for what is redundant {self.redundant} less {self.slope} times the length: "
                "redundant is at most full, and slope 0 or above"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return_N, length_N = batch.return_N, batch.mask_NS.sum(-1)
        full_N = self.full * return_N
        less_N = (self.redundant - self.slope * length_N / self.max_length) * return_N
        reward_NS = torch.where(self._redundant_NS(batch), less_N[:, None], full_N[:, None])
        label_N = torch.unique(batch.column("group_N", self), return_inverse=True)[1]
        place_NS = label_N[:, None] * batch.shape[1] + torch.arange(batch.shape[1], device=label_N.device)
        value_NS = ops.group_normalised(reward_NS.flatten(), place_NS.flatten(), ddof=self.ddof, eps=self.eps)
        return value_NS.view(batch.shape) * batch.mask_NS

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        return {"redundant_frac": float(ops.masked_mean(self._redundant_NS(batch), batch.mask_NS))}

    def _redundant_NS(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        if not self.necessary:
            return torch.zeros_like(batch.mask_NS)
        first_N, end_N = batch.column(self.necessary, self), batch.column(self.steps, self)
        return batch.mask_NS & (batch.turns_NS >= first_N[:, None]) & (batch.turns_NS < end_N[:, None])
