from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import ClippedWeight
from gimbal.ops import TokenMean
from gimbal.recipes.core.gspo import gspo
from gimbal.runtime.run import Run


def dispo() -> Run:
    """DISPO (arXiv:2602.00983): clipped weights with separate bounds for correct and wrong answers; eight updates per batch."""
    base = gspo()
    return replace(
        base,
        objective=ClippedWeight(clip_low=0.2, clip_high=4.0, bad_low=1.0, bad_high=4.0),
        aggregation=TokenMean(),
        optimization=replace(base.optimization, minibatches=8),
    )
