from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import ClippedWeight
from gimbal.ops import TokenMean
from gimbal.recipes.grpo import grpo
from gimbal.runtime.run import Run


def cispo() -> Run:
    """CISPO (arXiv:2506.13585): clipped, detached importance weights; every decision keeps a gradient."""
    return replace(grpo(), objective=ClippedWeight(), aggregation=TokenMean())
