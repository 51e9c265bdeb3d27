from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import ClippedWeight
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def cispo() -> Run:
    """CISPO (arXiv:2506.13585): clips and detaches the importance weight: every decision keeps a gradient; four updates per batch."""
    run = grpo()
    optimization = replace(run.optimization, minibatches=4)
    return replace(run, objective=ClippedWeight(clip_high=0.28), aggregation=TokenMean(), optimization=optimization)
