"""Statistics of a value over the rollouts of its group. ``group_N`` holds any integer labels, in any order.

Sums are taken in float64, so that the mean of equal float32 rewards is that very reward and their deviation exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
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


def last_row_of_episode(mask_NS: Bool[Tensor, "N S"], episode_N: Int[Tensor, " N"] | None) -> Int[Tensor, " N"]:
    """For each row, the last row of its episode that has decisions that count. Without labels each row is its own episode."""
    own_N = torch.arange(len(mask_NS), device=mask_NS.device)
    if episode_N is None:
        return own_N
    label_N = episode_N.unique(return_inverse=True)[1]
    ranked_N = own_N + len(mask_NS) * mask_NS.any(-1)
    last_E = torch.full_like(own_N, -1).scatter_reduce_(0, label_N, ranked_N, "amax")
    return last_E[label_N] % len(mask_NS)


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


def group_median(x_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Median of x over each rollout's group; of an even number of members, the mean of the two in the middle."""
    return _by_group(x_N, group_N, lambda x: x.quantile(0.5, interpolation="midpoint"))


def group_mad(x_N: Float[Tensor, " N"], group_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Median absolute deviation from the group's median."""
    return group_median((x_N - group_median(x_N, group_N)).abs(), group_N)


def group_normalised(
    x_N: Float[Tensor, " N"],
    group_N: Int[Tensor, " N"],
    *,
    centre: Literal["mean", "others", "median", "none"] = "mean",
    scale: Literal["std", "mad", "none"] = "std",
    ddof: int = 1,
    eps: float = 1e-6,
    counted_N: Bool[Tensor, " N"] | None = None,
) -> Float[Tensor, " N"]:
    """(x - centre) / (scale + eps) within each group, whose members need not be rollouts: tokens, turns and strata do as well.

    Statistics are of the members in ``counted_N`` (all by default); the others get 0, and so do a group of one counted member and
    a group of equal values (unless ``centre`` is "none"). With ``eps`` 0, a group without spread gets 0.
    """
    counted_N = torch.ones_like(group_N, dtype=torch.bool) if counted_N is None else counted_N
    x, group = x_N[counted_N], group_N[counted_N]
    middle = {"mean": group_mean, "others": group_others_mean, "median": group_median}.get(centre)
    value = x - middle(x, group) if middle is not None else x.clone()
    if middle is not None:
        value[group_size(group) == 1] = 0
    if scale != "none":
        spread = (group_std(x, group, ddof) if scale == "std" else group_mad(x, group)) + eps
        value = (value / spread).where(spread > 0, 0)
    result_N = torch.zeros_like(value, dtype=value.dtype).new_zeros(x_N.shape)
    result_N[counted_N] = value
    return result_N


def _by_group(x_N: Tensor, group_N: Tensor, statistic: Callable[[Tensor], Tensor]) -> Tensor:
    result_N = torch.zeros_like(x_N)
    for label in torch.unique(group_N):
        member_N = group_N == label
        result_N[member_N] = statistic(x_N[member_N])
    return result_N
