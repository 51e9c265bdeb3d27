"""Nodes of a search tree, each with a score of its own, are compared over the whole tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.estimators.revision_normalized import BEFORE, OUTCOME
from gimbal.composition import GROWS_TREE, Composition, Refusal, Verdict
from gimbal.records import TrainBatch

PARENT = "parent"  # which node of its tree a row refines, -1 for none; what came before the row is that node's outcome


@dataclass(frozen=True, kw_only=True)
class TreeShaped(AbstractAdvantage):
    """A node's score, raised by how far it is above its parent and its siblings, normalised over the tree (MARS2, arXiv:2604.14564).

    A(v) = (s'(v) - mean s') / (std s' + eps) over all nodes of the group;  s'(v) = s(v) + gamma (s(v) - b(v)),
    b(v) = (1 - siblings) s(parent) + siblings * mean of the other children of its parent.

    Without siblings b is the parent's score, under the root that of the siblings, and without either s' = s. s is the row's fact
    "score/outcome", its parent and the parent's score are "score/parent" and "score/before".

    - ``gamma`` = 0, or one node under the root: GroupNormalized.
    - ``siblings`` = 0: what is gained over the parent counts.
    - all outcomes of a tree equal, or a tree of one node: A = 0.

    The published code shapes in place, so that later siblings are compared with shaped parents; here all are the scores as they were.

    Confidence: verified; ours: raw scores in b.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"group_N"})

    gamma: float = 0.5
    siblings: float = 0.5
    ddof: int = 1
    eps: float = 1e-9

    def __post_init__(self) -> None:
        if not self.gamma >= 0 or not 0 <= self.siblings <= 1:
            raise ValueError(
                f"TreeShaped has gamma={self.gamma} and siblings={self.siblings}; gamma is 0 or above, siblings a share from 0 to 1"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        group_N = batch.column("group_N", self)
        outcome_N, parent_N, before_N = (
            batch.column(f"score/{name}", self).float() for name in (OUTCOME, PARENT, BEFORE)
        )
        family_N = torch.unique(torch.stack([group_N, parent_N.long()]), dim=1, return_inverse=True)[1]
        others_N, alone_N = ops.group_others_mean(outcome_N, family_N), ops.group_size(family_N) == 1
        # Alone, the mean of the others is its own outcome: under the root that leaves it unshaped.
        mixed_N = torch.where(alone_N, before_N, (1 - self.siblings) * before_N + self.siblings * others_N)
        shaped_N = outcome_N + self.gamma * (outcome_N - torch.where(parent_N < 0, others_N, mixed_N))
        return ops.group_normalised(shaped_N, group_N, ddof=self.ddof, eps=self.eps)[:, None] * batch.mask_NS

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(GROWS_TREE):
            yield Refusal(
                "TreeShaped compares nodes that know their parents, and this workflow grows no such tree: workflow='SharedTree()', or "
                "advantage='GroupNormalized()'"
            )
