"""Random numbers that belong to the data: the same row gets the same ones in any batch."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.ops.seeds import philox


def lots(x_NS: Float[Tensor, "N S"], mask_NS: Bool[Tensor, "N S"], *purpose: object) -> Float[Tensor, "N S"]:
    """A number in [0, 1) for each counted decision, from a generator seeded by what x holds on its row; 0 under the mask.

    It depends on neither the order of rows, nor padding, nor the batch; equal rows draw equal numbers. Give it an x that no second
    evaluation changes in its last digit, such as what the sampler recorded.
    """
    drawn = torch.zeros(x_NS.shape, dtype=torch.float64)
    kept_NS, value_NS = mask_NS.cpu(), x_NS.detach().cpu().float()
    for n, row_S in enumerate(kept_NS):
        seen = value_NS[n][row_S].numpy()
        drawn[n][row_S] = torch.from_numpy(philox(*purpose, seen.tobytes()).random(len(seen)))
    return drawn.to(x_NS.device)


def first_by(
    mask_NS: Bool[Tensor, "N S"], count: int, key_NS: Float[Tensor, "N S"], lot_NS: Float[Tensor, "N S"]
) -> Bool[Tensor, "N S"]:
    """The ``count`` decisions of the mask with the smallest key, over all rows; lots decide between equal keys."""
    place = mask_NS.flatten().nonzero()[:, 0]
    key, lot = (x_NS.flatten()[place].detach().cpu().numpy() for x_NS in (key_NS, lot_NS))
    order = np.lexsort((lot, key))[: max(count, 0)]
    chosen = torch.zeros(mask_NS.numel(), dtype=torch.bool, device=mask_NS.device)
    chosen[place[torch.from_numpy(order.copy()).to(place.device)]] = True
    return chosen.view(mask_NS.shape)
