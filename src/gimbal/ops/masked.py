"""Sums and means over decisions that count. An empty mask gives 0, never NaN."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor


def masked_sum(x_NS: Shaped[Tensor, "*shape"], mask_NS: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """Sum of x where the mask is True; what lies under the mask may be NaN or infinite."""
    return torch.where(mask_NS, x_NS, 0).sum(dtype=torch.promote_types(x_NS.dtype, torch.float32))


def masked_mean(x_NS: Shaped[Tensor, "*shape"], mask_NS: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """Mean of x where the mask is True; 0 for an empty mask."""
    return masked_sum(x_NS, mask_NS) / mask_NS.sum().clamp(min=1)


def masked_std(x_NS: Float[Tensor, "*shape"], mask_NS: Bool[Tensor, "*shape"], ddof: int = 0) -> Float[Tensor, ""]:
    """Standard deviation of x where the mask is True; 0 where fewer than ddof + 1 values count."""
    centred = torch.where(mask_NS, x_NS - masked_mean(x_NS, mask_NS), 0)
    return (centred.square().sum() / (mask_NS.sum() - ddof).clamp(min=1)).sqrt()


def sequence_mean(x_NS: Shaped[Tensor, "N S"], mask_NS: Bool[Tensor, "N S"]) -> Float[Tensor, " N"]:
    """Mean of each row over its counted decisions; 0 for a row without any."""
    kept_NS = torch.where(mask_NS, x_NS, 0)
    return kept_NS.sum(-1, dtype=torch.promote_types(x_NS.dtype, torch.float32)) / mask_NS.sum(-1).clamp(min=1)
