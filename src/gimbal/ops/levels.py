"""One number for each decision, each turn or each sequence."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Level = Literal["token", "turn", "sequence"]


def pooled(
    x_NS: Float[Tensor, "N S"],
    mask_NS: Bool[Tensor, "N S"],
    level: Level,
    turn_NS: Int[Tensor, "N S"] | None = None,
    how: Literal["sum", "mean"] = "mean",
) -> Float[Tensor, "N S"]:
    """Sum or mean of x over the counted decisions of each decision's own turn or sequence, spread over them; 0 under the mask.

    Level "token" is x itself. ``turn_NS`` None is a single turn. Differentiable in x.
    """
    if level not in ("token", "turn", "sequence"):
        raise ValueError(f"level is {level!r}; choose token, turn or sequence")
    counted_NS = torch.where(mask_NS, x_NS, 0)
    if level == "token":
        return counted_NS
    unit_NS = torch.zeros_like(mask_NS, dtype=torch.long) if level == "sequence" or turn_NS is None else turn_NS
    units = int(unit_NS.max()) + 1 if unit_NS.numel() else 1
    total_NU = counted_NS.new_zeros(x_NS.shape[0], units).scatter_add(1, unit_NS, counted_NS)
    if how == "mean":
        count_NU = torch.zeros_like(total_NU).scatter_add(1, unit_NS, mask_NS.to(total_NU.dtype))
        total_NU = total_NU / count_NU.clamp(min=1)
    return torch.where(mask_NS, total_NU.gather(1, unit_NS), 0)


def first_of_turn(turn_NS: Int[Tensor, "N S"], mask_NS: Bool[Tensor, "N S"]) -> Bool[Tensor, "N S"]:
    """The first counted decision of every turn. Turns are counted upwards along a row."""
    latest_NS = turn_NS.where(mask_NS, -1).cummax(-1).values
    before_NS = torch.nn.functional.pad(latest_NS[:, :-1], (1, 0), value=-1)
    return mask_NS & (turn_NS > before_NS)
