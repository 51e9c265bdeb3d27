"""Sums over what is still to come, along the counted decisions of each row."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def discounted_sums(x_NS: Float[Tensor, "N S"], mask_NS: Bool[Tensor, "N S"], discount: float) -> Float[Tensor, "N S"]:
    """y_t = x_t + discount y_next over the counted decisions of each row; what is masked is skipped, not discounted."""
    result_NS, carried_N = torch.zeros_like(x_NS), x_NS.new_zeros(x_NS.shape[0])
    for t in range(x_NS.shape[1] - 1, -1, -1):
        carried_N = torch.where(mask_NS[:, t], x_NS[:, t] + discount * carried_N, carried_N)
        result_NS[:, t] = carried_N
    return result_NS * mask_NS


def next_values(
    value_NS: Float[Tensor, "N S"], bootstrap_N: Float[Tensor, " N"], mask_NS: Bool[Tensor, "N S"]
) -> Float[Tensor, "N S"]:
    """The value at the next counted decision of the row; at the last one, the bootstrap."""
    result_NS, carried_N = torch.zeros_like(value_NS), bootstrap_N
    for t in range(value_NS.shape[1] - 1, -1, -1):
        result_NS[:, t] = carried_N
        carried_N = torch.where(mask_NS[:, t], value_NS[:, t], carried_N)
    return result_NS * mask_NS


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
