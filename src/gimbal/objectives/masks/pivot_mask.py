"""The rollout that is its group's median trains nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from gimbal import ops
from gimbal.composition import ZERO_AT_MEDIAN, Composition, Refusal, Verdict
from gimbal.objectives.base import AbstractMask
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class PivotMask(AbstractMask):
    """Excludes the median rollout: of G + 1 sampled rollouts G train (MC-GRPO, arXiv:2601.22582; made for MedianCentered).

    keep = False for the first rollout of each group whose return is the group's median, True otherwise. With ``renormalise`` it
    leaves the denominators too.

    - an even group, whose median lies between two rollouts: all are kept, unless those two tie.
    - all returns of a group equal: its first rollout goes, whichever way their advantages would be 0.
    - a group of one: excluded.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})

    renormalise: bool = True

    def __call__(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        return_N, group_N = batch.return_N.double(), batch.column("group_N", self)
        central_N = return_N == ops.group_median(return_N, group_N)
        keep_N = torch.ones_like(central_N)
        for label in torch.unique(group_N):
            keep_N[((group_N == label) & central_N).nonzero()[:1, 0]] = False
        return keep_N[:, None] & batch.mask_NS

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(ZERO_AT_MEDIAN):
            yield Refusal(
                "PivotMask drops the rollout at the median, whose advantage is 0 only with advantage=MedianCentered()"
            )
