"""Vectors that agree on which of them is better."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def longest_chain(value_GK: Float[Tensor, "G K"]) -> Int[Tensor, " G"]:
    """Rank of each row on the longest chain of dominance, from 0, equal rows sharing one; -1 for rows off it.

    A row dominates another that it is nowhere below and somewhere above; on a chain each dominates, or equals, all before it. Equal
    rows count each. Of equally long chains it is the one whose rows, from the top, come first in the order of their columns, so the
    order of rows does not matter. O(G^2 K).
    """
    if len(value_GK) == 0:
        return torch.zeros(0, dtype=torch.long, device=value_GK.device)
    # Sorted by columns, so a row stands behind all that it dominates.
    row_DK, which_G, count_D = torch.unique(value_GK, dim=0, return_inverse=True, return_counts=True)
    rows, length, before = row_DK.tolist(), count_D.tolist(), [-1] * len(row_DK)
    for here in range(len(rows)):
        own, best = length[here], 0
        for there in range(here):
            if length[there] >= best and all(a >= b for a, b in zip(rows[here], rows[there], strict=True)):
                best, before[here] = length[there], there
        length[here] = own + best
    place = max(range(len(rows)), key=lambda d: (length[d], d))
    chain = []
    while place >= 0:
        chain.append(place)
        place = before[place]
    rank_D = torch.full((len(rows),), -1, dtype=torch.long, device=value_GK.device)
    rank_D[torch.tensor(chain[::-1], device=value_GK.device)] = torch.arange(len(chain), device=value_GK.device)
    return rank_D[which_G]
