"""Statistics of a value over the rollouts of its group. ``group_N`` holds any integer labels, in any order.

Sums are taken in float64, so that the mean of equal float32 rewards is that very reward and their deviation exactly 0.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def _sums(x_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> tuple[Tensor, Tensor, Tensor]:
    label_N = torch.unique(group_N, return_inverse=True)[1]
    count = int(label_N.max()) + 1 if len(label_N) else 0
    x_N = x_N.double()
    total = x_N.new_zeros(count).index_add_(0, label_N, x_N)
    size = x_N.new_zeros(count).index_add_(0, label_N, torch.ones_like(x_N))
    return label_N, total, size


def group_size(group_N: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
    """How many rollouts each rollout's group has, itself included."""
    label_N, _, size = _sums(torch.zeros_like(group_N, dtype=torch.float64), group_N)
    return size.long()[label_N]


def group_mean(x_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Mean of x over each rollout's group."""
    label_N, total, size = _sums(x_N, group_N)
    return (total / size)[label_N].to(x_N.dtype)


def group_others_mean(x_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Mean of x over the *other* rollouts of the group; in a group of one, x itself (so that x minus it is 0)."""
    label_N, total, size = _sums(x_N, group_N)
    others_N = (total[label_N] - x_N) / (size[label_N] - 1).clamp(min=1)
    return torch.where(size[label_N] > 1, others_N, x_N).to(x_N.dtype)


def group_std(x_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"], ddof: int = 1) -> Float[Tensor, " N"]:
    """Standard deviation of x over each rollout's group; 0 where the group has no more than ddof members."""
    label_N, _, size = _sums(x_N, group_N)
    square_N = (x_N - group_mean(x_N, group_N)).square()
    _, total, _ = _sums(square_N, group_N)
    return (total / (size - ddof).clamp(min=1)).sqrt()[label_N].to(x_N.dtype)
