from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.objectives.surrogates.total_ratio_weight import TotalRatioWeight
from gimbal.ops import ConstantMean
from gimbal.recipes.core.gspo import gspo
from gimbal.runtime.run import Run


def minirl() -> Run:
    """MiniRL (arXiv:2512.01374): truncated weights for the int8 sampler, masked by the clip; no division by lengths or deviations."""
    # A constant length instead of 1 scales the gradient, not its direction.
    return replace(
        gspo(), objective=TotalRatioWeight(), advantage=GroupCentered(), aggregation=ConstantMean(length=32.0)
    )
