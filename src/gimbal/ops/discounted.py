"""Sums of future values along the counted decisions of each row."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad


def on_decisions(reward_NS: Float[Tensor, "N S"], mask_NS: Bool[Tensor, "N S"]) -> Float[Tensor, "N S"]:
    """Each reward on a decision that counts: one under the mask (an environment paid it while a tool's answer was read) goes to the
    last that counts before it, or to the first where there is none before. The sum of a row stays the same unless nothing counts.

    Methods read only counted decisions (``TrainBatch.column``), so a reward elsewhere would be lost.
    """
    place_S = torch.arange(mask_NS.shape[1], device=mask_NS.device)
    last_NS = torch.where(mask_NS, place_S, -1).cummax(1).values
    first_N = mask_NS.int().argmax(1)
    to_NS = torch.where(last_NS < 0, first_N[:, None], last_NS)
    return torch.zeros_like(reward_NS).scatter_add(1, to_NS, reward_NS)


def discounted_sums(x_NS: Float[Tensor, "N S"], mask_NS: Bool[Tensor, "N S"], discount: float) -> Float[Tensor, "N S"]:
    """y_t = x_t + discount y_next over the counted decisions of each row; what is masked is skipped, not discounted.

    By doubling: after k rounds y_t reaches 2^k decisions ahead, and ``share_NS`` is the weight of what lies beyond them. A loop over
    the decisions takes twenty times as long for 16 rows of 500, and half as long again for 128 of 10,000 (one thread).
    """
    sum_NS = torch.where(mask_NS, x_NS, 0.0)
    share_NS = torch.where(mask_NS, torch.full_like(x_NS, discount), 1.0)
    reach = 1
    while reach < x_NS.shape[1]:
        sum_NS = sum_NS + share_NS * pad(sum_NS[:, reach:], (0, reach))
        share_NS = share_NS * pad(share_NS[:, reach:], (0, reach))
        reach *= 2
    return sum_NS * mask_NS


def next_values(
    value_NS: Float[Tensor, "N S"], bootstrap_N: Float[Tensor, " N"], mask_NS: Bool[Tensor, "N S"]
) -> Float[Tensor, "N S"]:
    """The value at the next counted decision of the row; at the last one, the bootstrap."""
    last = value_NS.shape[1]
    place_NS = torch.where(mask_NS, torch.arange(last, device=mask_NS.device), last)
    after_NS = pad(place_NS[:, 1:], (0, 1), value=last).flip(1).cummin(1).values.flip(1)
    return torch.cat([value_NS, bootstrap_N[:, None]], 1).gather(1, after_NS) * mask_NS


def generalised_advantages(
    reward_NS: Float[Tensor, "N S"],
    value_NS: Float[Tensor, "N S"],
    bootstrap_N: Float[Tensor, " N"],
    mask_NS: Bool[Tensor, "N S"],
    gamma: float,
    lam: float,
) -> Float[Tensor, "N S"]:
    """GAE: sums, discounted by gamma lam, of the errors r + gamma V_next - V."""
    delta_NS = reward_NS + gamma * next_values(value_NS, bootstrap_N, mask_NS) - value_NS
    return discounted_sums(delta_NS, mask_NS, gamma * lam)
