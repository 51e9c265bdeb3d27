from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.objectives import ClippedRatio
from gimbal.ops import TokenMean
from gimbal.recipes.grpo import grpo
from gimbal.rewards.overlong import OverlongPenalty
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def dapo() -> Run:
    """DAPO (arXiv:2503.14476): clip-higher, token mean, dynamic sampling with refill, soft overlong penalty, four updates."""
    run = grpo()
    return replace(
        run,
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28),
        aggregation=TokenMean(),
        filters=(ZeroVariance(),),
        rewards=(ReasoningScore(), OverlongPenalty(limit=64, zone=16)),
        optimization=replace(run.optimization, minibatches=4),
    )
