from __future__ import annotations

from dataclasses import replace

from gimbal.controllers import Lagrangian
from gimbal.objectives.surrogates.ratio_variance import RatioVariance
from gimbal.ops import TokenMean
from gimbal.recipes.core.gspo import gspo
from gimbal.runtime.run import Run


def r2vpo() -> Run:
    """R2VPO (arXiv:2601.03320): a Lagrange multiplier holds the variance of the ratio at a limit; four updates per batch."""
    return replace(
        gspo(),
        objective=RatioVariance(),
        aggregation=TokenMean(),
        controllers={
            "objective.strength": Lagrangian(signal="ratio/variance", limit=0.02, rate=0.5, initial=1.0, high=100.0)
        },
    )
