"""Log-ratios between two log-probabilities of the same decisions, KL estimators, effective sample size."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LOG_RATIO_LIMIT = 20.0  # exp(20) = 5e8 still squares in float32; beyond it a ratio carries no information


def log_ratio(new: Float[Tensor, "*shape"], old: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """new - old, clamped to ±20 so that its exponential stays finite, in at least float32."""
    difference = new.to(torch.promote_types(new.dtype, torch.float32)) - old
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def ratio(new: Float[Tensor, "*shape"], old: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """exp(new - old), with the log-ratio clamped to ±20."""
    return log_ratio(new, old).exp()


def k1(new: Float[Tensor, "*shape"], old: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """new - old: unbiased for KL(new || old) under samples of new; any sign."""
    return log_ratio(new, old)


def k2(new: Float[Tensor, "*shape"], old: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """(new - old)^2 / 2: biased in value, never negative; its gradient on-policy is that of KL(new || old)."""
    return 0.5 * log_ratio(new, old).square()


def k3(new: Float[Tensor, "*shape"], old: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """exp(old - new) - 1 - (old - new): unbiased for KL(new || old) under samples of new, never negative."""
    d = log_ratio(new, old)
    return torch.expm1(-d) + d


def effective_sample_share(log_weight: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """(sum w)^2 / (n sum w^2) of weights exp(log_weight), in (0, 1]; 1 for equal weights and for an empty mask."""
    kept = log_weight[mask].double()
    if kept.numel() == 0:
        return torch.ones((), dtype=torch.float32)
    weight = (kept - kept.max()).exp()
    return (weight.sum().square() / (weight.square().sum() * kept.numel())).float()
