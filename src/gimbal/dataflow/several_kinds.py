"""Rows of several kinds of policies in one batch: tokens beside paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from gimbal.records import AbstractDecisions


@dataclass(frozen=True, kw_only=True)
class SeveralKinds(AbstractDecisions):
    """Row n is row ``place_N[n]`` of ``parts[part_N[n]]``, each part the record of one kind.

    Rows of one kind alone are that kind's own record (``select``, ``together``), which is what its policy reads.
    """

    parts: tuple[AbstractDecisions, ...]
    part_N: Int[Tensor, " N"]
    place_N: Int[Tensor, " N"]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.part_N), max(part.shape[1] for part in self.parts)

    @property
    def cost_N(self) -> Int[Tensor, " N"]:
        cost_N = torch.zeros_like(self.part_N)
        for number, part in enumerate(self.parts):
            own_N = self.part_N == number
            cost_N[own_N] = part.cost_N[self.place_N[own_N]].to(cost_N.dtype)
        return cost_N

    def select(self, rows: Int[Tensor, " M"]) -> AbstractDecisions:
        part_M, place_M = self.part_N[rows], self.place_N[rows]
        there = part_M.unique().tolist()
        if len(there) == 1:
            return self.parts[there[0]].select(place_M)
        number_M = torch.searchsorted(torch.tensor(there, device=part_M.device), part_M)
        chosen = tuple(self.parts[number].select(place_M[part_M == number]) for number in there)
        return SeveralKinds(parts=chosen, part_N=number_M, place_N=_places(number_M))

    @classmethod
    def stack(cls, items: Sequence[AbstractDecisions]) -> AbstractDecisions:
        raise AssertionError("rows of several kinds are put together once, by together()")

    def to(self, device: torch.device) -> SeveralKinds:
        parts = tuple(part.to(device) for part in self.parts)
        return SeveralKinds(parts=parts, part_N=self.part_N.to(device), place_N=self.place_N.to(device))


def together(rows: Sequence[AbstractDecisions]) -> AbstractDecisions:
    """Single rows as one record, in their order: their own kind's where there is one kind."""
    kinds = list(dict.fromkeys(type(row) for row in rows))
    if len(kinds) == 1:
        return kinds[0].stack(rows)
    part_N = torch.tensor([kinds.index(type(row)) for row in rows])
    parts = tuple(kind.stack([row for row in rows if type(row) is kind]) for kind in kinds)
    return SeveralKinds(parts=parts, part_N=part_N, place_N=_places(part_N))


def _places(part_N: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
    """The number of each row among those of its part."""
    one_hot_NP = nn.functional.one_hot(part_N)
    return one_hot_NP.cumsum(0).gather(1, part_N[:, None])[:, 0] - 1
