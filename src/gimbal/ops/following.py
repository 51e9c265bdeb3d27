"""How well a follower keeps up with its target, and how calmly: the two ends of a trade (arXiv:2510.00339).

Confidence: partial; ours: the mean absolute difference as distance.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor


def synchrony(value_TD: Float[Tensor, "T D"], target_TD: Float[Tensor, "T D"]) -> float:
    """1 - mean |value - target|: 1 is always there."""
    return 1 - float((value_TD - target_TD).abs().double().mean()) if value_TD.numel() else 1.0


def stability(value_TD: Float[Tensor, "T D"]) -> float:
    """1 - mean |value_t - value_(t-1)|: 1 never moves."""
    return 1 - float(value_TD.diff(dim=0).abs().double().mean()) if len(value_TD) > 1 and value_TD.numel() else 1.0


def flips(label_T: Int[Tensor, " T"]) -> float:
    """The share of turns whose label is not the one before."""
    return float((label_T.diff() != 0).double().mean()) if len(label_T) > 1 else 0.0


def churn(label_TD: Int[Tensor, "T D"]) -> float:
    """How many of D settings change in a turn, on average."""
    return float((label_TD.diff(dim=0) != 0).sum(-1).double().mean()) if len(label_TD) > 1 else 0.0
